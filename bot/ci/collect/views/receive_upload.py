"""POST /api/oot/uploads: files from a backend on another CI, which GitHub does not keep.

Who may report on a dispatch may upload for it, with the same token and the same callback token. Of runs that were not
dispatched, the token alone says whose file it is; what commit it is of is the backend's word.
"""

from __future__ import annotations

import asyncio
import hashlib
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Annotated, Any

from aiohttp import web
from msgspec import Meta

from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.store import fetches, uploads
from bot.ci.collect.tables import TestedRun
from bot.ci.collect.tasks import fetch_file
from bot.ci.collect.workspace import WORKSPACE
from bot.core.errors import Rejected
from bot.core.json_fields import as_commit, clean
from bot.db import secrets
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.oot.allowlist import rows as allowlists
from bot.oot.reports import authorization, callback_token, endpoints
from bot.oot.reports.views import BACKEND, UNKNOWN_CALLER
from bot.oot.results.store import dispatches
from bot.oot.results.tables import SELF_TRIGGERED
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import Answer, one_of, send
from bot.web.app_keys import CONTEXT
from bot.web.bodies import post_routes
from bot.web.body_capacity import Body, BodyCapacity, CapacityLimits
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from bot.context import Context
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.reports.oidc import Claims

MIB = 1024 * 1024
LIMIT = 64 * MIB  # bytes of one file
DAILY = 2048 * MIB  # bytes a backend may upload in a day
A_MINUTE = 60  # uploads of one backend
SECONDS = 300.0  # for one file
LIMITS = CapacityLimits(most_bytes=4 * LIMIT, most_bodies=4, most_each=2, grace=10.0)
MINUTE = 60_000  # milliseconds
DAY = 86_400_000  # milliseconds
LONGEST = 300  # characters of a name
KINDS = ("benchmark", "junit", "log", "metrics", "runreport", "sccache", "usage")
PUSH = "push"
EVENTS = (*SELF_TRIGGERED, PUSH)  # of runs that were not dispatched
TOKEN_HEADER = "X-OOT-Callback-Token"  # noqa: S105 - a header's name
FIELDS = ("delivery_id", "run_id", "workflow", "job")
PIECE = 256 * 1024
ARRIVING: web.AppKey[BodyCapacity] = web.AppKey("arriving_uploads", BodyCapacity)


class Uploaded(Answer, frozen=True, kw_only=True):
    """It is kept, and will be read"""

    upload: Annotated[int, Meta(description="its id")]


async def receive_upload(request: web.Request) -> web.Response:
    """Take a file; it is stored before the answer and read later."""
    try:
        claims = await endpoints.authenticate(request)
        given = _given(request, claims)
        entry, run = await _admitted(request, claims, given)
        identifier = await _receive(request, claims, entry, run, given)
    except Rejected as refusal:
        raise endpoints.refused(request, refusal) from None
    return send(Uploaded(upload=identifier), status=202)


def known_kinds(context: Context) -> list[str]:
    """Return the kinds that can be read."""
    return [kind for kind in KINDS if fetch_file.reader_of(context, kind)]


def _given(request: web.Request, claims: Claims) -> dict[str, str]:
    """Return the parameters; raises Rejected 400, and 403 for another run than the token's."""
    names = ("kind", *FIELDS, "run_attempt", "event_type", "name")
    given = {name: clean(text)[:LONGEST] for name in names if (text := parameters.given(request, name))}
    missing = [name for name in FIELDS if not given.get(name)]
    if missing:
        raise Rejected(400, "invalid_parameter", f"{missing[0]} is missing: name the job that the file is of")
    known = known_kinds(request.app[CONTEXT])
    if given.get("kind") not in known:
        words = ", ".join(known) or "none yet"
        raise Rejected(400, "invalid_parameter", f"kind must be one that can be read: {words}")
    attempt = given.setdefault("run_attempt", "1")
    if not attempt.isascii() or not attempt.isdigit() or not 0 < int(attempt) < 10**6:
        raise Rejected(400, "invalid_parameter", "run_attempt must be a whole number from 1")
    if claims.run_id is not None and claims.run_id != given["run_id"]:
        raise Rejected(403, "forbidden", "run_id is not the run that the token was issued to")
    return given


async def _admitted(request: web.Request, claims: Claims, given: dict[str, str]) -> tuple[Entry, TestedRun]:
    """Return the caller's entry and what the run of the file was for; raises Rejected."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        entry = authorization.find_entry(await allowlists.in_force(tx), context.settings, claims)
        if entry is None:
            raise Rejected(
                403, "not_listed", f"{claims.repository} may not upload: it is not in the allowlist"
            )
        identity = dispatches.identity(given["delivery_id"], entry.repo)
        dispatch = (await dispatches.get_by_id(tx, [identity])).get(identity)
        if dispatch is None or dispatch["dispatched_at"] is None:
            run = _not_dispatched(entry, claims, given)
        else:
            token = request.headers.get(TOKEN_HEADER)
            required = token is not None or entry.callback_token != "optional"  # noqa: S105 - a mode
            key = await secrets.key(tx, "callback")  # it is there since the dispatch
            if required and not callback_token.belongs(token, dispatch, key, now=tx.now):
                detail = (
                    f"{TOKEN_HEADER} is missing or wrong: send client_payload.callback_token of this dispatch"
                )
                raise Rejected(403, "forbidden", detail)
            run = TestedRun(dispatch_id=dispatch["id"], event_type=None, commit_sha=None)
        if await uploads.count_since(tx, entry.key, tx.now - MINUTE) >= A_MINUTE:
            detail = f"{entry.repo} has uploaded {A_MINUTE} files in a minute, the most it may"
            raise Rejected(429, "rate_limited", detail, headers={"Retry-After": "60"})
        if await uploads.bytes_since(tx, entry.key, tx.now - DAY) >= DAILY:
            detail = f"{entry.repo} has uploaded {DAILY // MIB // 1024} GiB in a day, the most it may"
            raise Rejected(429, "rate_limited", detail, headers={"Retry-After": "3600"})
    return entry, run


def _not_dispatched(entry: Entry, claims: Claims, given: dict[str, str]) -> TestedRun:
    """Return what a run of the backend's own was for, as the backend says; raises Rejected."""
    event, commit = given.get("event_type"), as_commit(given["delivery_id"])
    if event not in EVENTS:
        detail = f"that delivery was never dispatched to {entry.repo}; of a run that nobody dispatched, event_type says"
        raise Rejected(404, "unknown_dispatch", f"{detail} so: {', '.join(EVENTS)}")
    authorization.check_own_runs(entry, claims, "files of own runs")
    if commit is None:
        whose = "backend" if event == PUSH else "upstream"
        raise Rejected(
            400, "invalid_parameter", f"delivery_id must be the {whose} commit of a run by {event}"
        )
    if event == PUSH and given["kind"] == "log":
        detail = "a log needs the report that says whether its job failed, and a push of the backend itself has none"
        raise Rejected(400, "invalid_parameter", detail)
    return TestedRun(dispatch_id="", event_type=event, commit_sha=commit)


async def _receive(
    request: web.Request, claims: Claims, entry: Entry, run: TestedRun, given: dict[str, str]
) -> int:
    """Store the body and its row; returns the upload's id."""
    context = request.app[CONTEXT]
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    if (request.content_length or 0) > LIMIT:
        raise _too_large()
    if context.resource(WORKSPACE).disk_full():
        detail = "too little disk space is left: come back later"
        raise Rejected(503, "busy", detail, headers={"Retry-After": "600"})
    async with context.resource(WORKSPACE).folder() as folder:
        size, sha256 = await _to_file(request, folder / "body", entry.key)
        blob = f"upload/{token_hex(16)}"  # one of its own: it is deleted once it was read
        await context.resource(BLOBS).put(blob, folder / "body")
    row = {
        "backend": entry.repo,
        "backend_key": entry.key,
        **run,
        "kind": given["kind"],
        "run_id": given["run_id"],
        "run_attempt": int(given["run_attempt"]),
        "workflow": given["workflow"],
        "job": given["job"],
        "name": given.get("name", ""),
        "size": size,
        "sha256": sha256,
        "blob": blob,
        "received_at": context.clock.now(),
    }
    async with context.store.transaction() as tx:
        row["repository_id"] = await uploads.repository_of_backend(tx, entry.repo, claims.repository_id)
        identifier = await uploads.record_upload(tx, row)
        await fetches.want_fetches(tx, [_intent(identifier, row)])
        tx.enqueue("upload", str(identifier))
    return identifier


async def _to_file(request: web.Request, path: Path, caller: str) -> tuple[int, str]:
    """Stream the body to a file; returns its size and digest. Raises Rejected 408, 413, and 503 where others wait."""
    digest, size, waiting = hashlib.sha256(), 0, bytearray()
    capacity = request.app[ARRIVING]
    try:
        with path.open("wb") as file:
            async with asyncio.timeout(SECONDS) as deadline:
                body = Body(capacity, deadline, SECONDS, caller=caller, shared=False)
                try:
                    await capacity.take(body, 0)
                    async for piece in request.content.iter_any():
                        size += len(piece)
                        if size > LIMIT:
                            raise _too_large()
                        await capacity.take(body, len(piece))
                        waiting += piece
                        if len(waiting) >= PIECE:
                            await asyncio.to_thread(_write, file, digest, bytes(waiting))
                            waiting.clear()
                finally:
                    capacity.release(body)
            await asyncio.to_thread(_write, file, digest, bytes(waiting))
    except TimeoutError:
        detail = "the body arrives too slowly"
        raise Rejected(408, "body_timeout", detail, headers={"Connection": "close"}) from None
    return size, digest.hexdigest()


def _write(file: IO[bytes], digest: Any, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)


def _too_large() -> Rejected:
    detail = f"the file is larger than {LIMIT // MIB} MiB, the most this address takes"
    return Rejected(413, "body_too_large", detail, headers={"Connection": "close"})


def _intent(identifier: int, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "repository_id": row["repository_id"],
        "kind": "upload",
        "object_id": identifier,
        "run_id": 0,  # of another CI: ci_upload has it as text
        "run_attempt": row["run_attempt"],
        "job_id": None,
        "blob": row["blob"],
    }


PATH = "/api/oot/uploads"
OPERATION = op.Operation(
    f"POST {PATH}",
    "upload",
    "Upload a job's log, test reports or usage log",
    Uploaded,
    status=202,
    topic=op.RECEIVING,
    callers=[BACKEND],
    description="For backends on a CI other than GitHub Actions, whose logs the App cannot fetch. The same token "
    "as for reports. The file is stored before the answer and read later.",
    parameters=[
        op.needed("kind", Annotated[str, one_of(KINDS)], "what the file is"),
        op.needed(
            "delivery_id", op.Text, "of the dispatch; of a run that nobody dispatched, the commit it tested"
        ),
        op.needed("run_id", op.Text, "the CI's own; the token's where it has one"),
        op.whole("run_attempt", 999_999, "of the run", default=1),
        op.needed("workflow", op.Text, "as in the report on the job"),
        op.needed("job", op.Text, "as in the report on the job"),
        op.in_query(
            "event_type",
            Annotated[str, one_of(EVENTS)],
            "of a run that nobody dispatched: delivery_id is upstream's commit, and the backend's own of a push",
        ),
        op.in_query("name", op.Text, "of the file"),
        op.in_header(TOKEN_HEADER, op.Text, "client_payload.callback_token", required=False),
    ],
    body=op.Content(
        bytes, f"the file itself, at most {LIMIT // MIB} MiB", media_type="application/octet-stream"
    ),
    refusals=[
        op.WRONG_PARAMETER,
        *UNKNOWN_CALLER,
        (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
        *op.SENDING,
    ],
)
_route, _with_slash = post_routes(PATH, receive_upload)
ENDPOINTS = (Endpoint(_route, OPERATION), Endpoint(_with_slash))
