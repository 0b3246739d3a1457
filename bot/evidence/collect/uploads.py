"""Files that backends on other CIs upload: POST /api/oot/uploads, their rows, and the task `upload` that reads one."""

from __future__ import annotations

import asyncio
import hashlib
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Annotated, Any

import sqlalchemy as sa
from aiohttp import web
from msgspec import Meta

from bot.core.errors import GiveUp, NotYet, Rejected
from bot.core.json_fields import as_commit, clean
from bot.db import installation
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.db.rows import select
from bot.db.statements import Statement
from bot.evidence.collect import fetch_file, fetches
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.fetch_file import Wanted
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched
from bot.evidence.collect.remote_blobs import copy_to
from bot.evidence.collect.tables import TestedRun, UploadRow, ci_fetch, ci_upload
from bot.ingest import repositories
from bot.jobs import runs
from bot.jobs.collection import FetchState
from bot.jobs.job_names import FAILED
from bot.oot.allowlist import versions as allowlists
from bot.oot.reports import authorization, endpoints
from bot.oot.reports.endpoints import BACKEND, UNKNOWN_CALLER
from bot.oot.results import dispatches
from bot.oot.results.tables import SELF_TRIGGERED, oot_workflow_job
from bot.web import addresses
from bot.web import openapi as op
from bot.web.access import CONTEXT
from bot.web.answers import Answer, one_of, send_json
from bot.web.bodies import Body, BodyCapacity, CapacityLimits, post_routes
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.reports.oidc import Claims
    from bot.queue.tasks import Task

REPORTS_MOST = 500  # of one run
UPLOAD, REPORTED, FETCH = ci_upload.c, oot_workflow_job.c, ci_fetch.c
OPEN = sa.and_(
    FETCH.repository_id == UPLOAD.repository_id, FETCH.kind == "upload", FETCH.object_id == UPLOAD.id,
    FETCH.state == "wanted",
)  # fmt: skip
WAITING = Statement(
    sa.select(UPLOAD.id)
    .join(ci_fetch, OPEN)
    .where(UPLOAD.dispatch_id.in_(sa.bindparam("dispatches", expanding=True)))
    .order_by(UPLOAD.id)
)
DAY = 86_400_000  # milliseconds: so long a report is waited for
LOOK_AGAIN = 600.0  # seconds between looks; the report itself has the file read at once
MIB = 1024 * 1024
UPLOAD_LIMIT = 64 * MIB  # bytes of one file
DAILY_LIMIT = 2048 * MIB  # bytes a backend may upload in a day
A_MINUTE = 60  # uploads of one backend
SECONDS = 300.0  # for one file
LIMITS = CapacityLimits(most_bytes=4 * UPLOAD_LIMIT, most_bodies=4, most_each=2, grace=10.0)
MINUTE = 60_000  # milliseconds
LONGEST = 300  # characters of a name
KINDS = ("benchmark", "junit", "log", "metrics", "runreport", "sccache", "usage")
PUSH_EVENT = "push"
EVENTS = (*SELF_TRIGGERED, PUSH_EVENT)  # of runs that were not dispatched
TOKEN_HEADER = "X-OOT-Callback-Token"  # noqa: S105 - a header's name
FIELDS = ("delivery_id", "run_id", "workflow", "job")
PIECE = 256 * 1024
ARRIVING: web.AppKey[BodyCapacity] = web.AppKey("arriving_uploads", BodyCapacity)
PATH = "/api/oot/uploads"


class Uploaded(Answer, frozen=True, kw_only=True):
    """It is kept, and will be read"""

    upload: Annotated[int, Meta(description="its id")]


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
        bytes, f"the file itself, at most {UPLOAD_LIMIT // MIB} MiB", media_type="application/octet-stream"
    ),
    refusals=[
        op.WRONG_PARAMETER,
        *UNKNOWN_CALLER,
        (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
        *op.SENDING,
    ],
)


async def find_upload(tx: Transaction, identifier: int) -> UploadRow | None:
    """Return an upload."""
    return await tx.fetch_first(select(UploadRow, ci_upload).where(UPLOAD.id == identifier))


async def bytes_since(tx: Transaction, backend_key: str, since: int) -> int:
    """Return how many bytes a backend has uploaded since a time."""
    query = sa.select(sa.func.coalesce(sa.func.sum(UPLOAD.size), 0)).where(
        UPLOAD.backend_key == backend_key, UPLOAD.received_at > since
    )
    return int((await tx.run(query)).scalar_one())


async def count_since(tx: Transaction, backend_key: str, since: int) -> int:
    """Return how many files a backend has uploaded since a time."""
    query = sa.select(sa.func.count()).where(UPLOAD.backend_key == backend_key, UPLOAD.received_at > since)
    return int((await tx.run(query)).scalar_one())


async def repository_of_backend(tx: Transaction, backend: str, claimed: str | None) -> int:
    """Return the id of a backend's repository on GitHub; 0, which is private, where the name alone does not tell.

    The id in a token is GitHub's only if a repository of this name had it: other issuers have their own ids.
    """
    known = await repositories.read_ids(tx, backend)
    if claimed in {str(row) for row in known}:
        return int(claimed or 0)
    return next(iter(known)) if len(known) == 1 else 0


async def job_failed(tx: Transaction, upload: UploadRow) -> bool | None:
    """Return whether an upload's job failed, as its backend reported; None where it has not reported yet.

    Where no job of that name is reported, all jobs of the run decide.
    """
    dispatched = REPORTED.dispatch_id == upload["dispatch_id"]
    own = sa.and_(
        REPORTED.dispatch_id.is_(None),
        sa.func.lower(REPORTED.downstream_repo) == upload["backend"].lower(),
        REPORTED.delivery_id == upload["commit_sha"],
    )
    same_run = sa.select(
        REPORTED.workflow_name, REPORTED.job_name, REPORTED.status, REPORTED.conclusion
    ).where(
        dispatched if upload["dispatch_id"] else own,
        REPORTED.run_id == upload["run_id"],
        REPORTED.run_attempt == upload["run_attempt"],
    )
    reported = (await tx.run(same_run.limit(REPORTS_MOST))).all()
    name = (upload["workflow"], upload["job"])
    named = [report for report in reported if (report.workflow_name, report.job_name) == name] or reported
    if any(report.conclusion in FAILED for report in named):
        return True
    ended = named and all(report.status == "completed" for report in named)
    return False if ended else None


async def uploads_waiting_for(tx: Transaction, dispatch_ids: Collection[str]) -> list[int]:
    """Return the unread uploads for some dispatches."""
    return list((await tx.run(WAITING, {"dispatches": sorted(dispatch_ids)})).scalars())


async def record_upload(tx: Transaction, row: dict[str, Any]) -> int:
    """Store an upload; returns its id."""
    return int((await tx.run(sa.insert(ci_upload).values(row).returning(UPLOAD.id))).scalar_one())


async def request_waiting(tx: Transaction, changed: Changed) -> None:
    """Before a commit, request the files that waited for these reports."""
    reported = changed.get("oot_workflow_job", ())
    ended = {str(row["dispatch_id"]) for row in reported if row.get("dispatch_id") and row.get("conclusion")}
    for identifier in await uploads_waiting_for(tx, ended) if ended else ():
        tx.enqueue("upload", str(identifier))


async def read_upload(context: Context, task: Task) -> None:
    """Read an uploaded file; the file itself is deleted afterwards."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} names no upload")
    async with context.store.transaction() as tx:
        upload = await find_upload(tx, int(task.key))
        if upload:
            context.resource(WORKSPACE).shares.check(upload["backend"].casefold())
        failed = await job_failed(tx, upload) if upload else None
        waits = (
            upload is not None
            and upload["kind"] == "log"
            and failed is None
            and tx.now - upload["received_at"] < DAY
        )
        begun = (
            upload
            and not waits
            and await fetches.begin_try(tx, upload["repository_id"], "upload", upload["id"])
        )
        fetched = await _fetched(tx, context.settings, upload, failed=bool(failed)) if upload else None
    if waits:
        raise NotYet("the job of the upload has not been reported as ended", after=LOOK_AGAIN)
    if not upload or not begun or not fetched:
        return
    reader = fetch_file.reader_of(context, upload["kind"])
    prefix = (reader and reader.receiver.blob_prefix) or "upload-of"
    blob = f"{prefix}/{upload['repository_id']}/upload-{upload['id']}"
    wanted = Wanted(fetched=fetched, path="", size=upload["size"], digest=None, blob=blob)
    if reader is None:
        await fetch_file.end_fetch(context, begun, FetchState.SKIPPED, f"nothing reads {upload['kind']}")
    else:
        async with context.resource(WORKSPACE).folder() as folder:
            await copy_to(context.resource(BLOBS), upload["blob"], folder / "file")
            await fetch_file.parse_file(context, begun, wanted, reader, folder)
    await context.resource(BLOBS).delete(upload["blob"])


async def receive_upload(request: web.Request) -> web.Response:
    """Take a file; it is stored before the answer, and read later."""
    try:
        claims = await endpoints.authenticate(request)
        given = _given_fields(request, claims)
        entry, run = await _admitted_backend(request, claims, given)
        identifier = await _receive(request, claims, entry, run, given)
    except Rejected as refusal:
        raise endpoints.count_refusal(request, refusal) from None
    return send_json(Uploaded(upload=identifier), status=202)


def known_kinds(context: Context) -> list[str]:
    """Return the kinds that can be read."""
    return [kind for kind in KINDS if fetch_file.reader_of(context, kind)]


_route, _with_slash = post_routes(PATH, receive_upload)
ENDPOINTS = (Endpoint(_route, OPERATION), Endpoint(_with_slash))


def setup(app: web.Application) -> None:
    """Add the limits of uploads that arrive."""
    app[ARRIVING] = BodyCapacity(LIMITS)


async def _fetched(tx: Transaction, settings: Settings, upload: UploadRow, *, failed: bool) -> Fetched:
    facts = await runs.repository_facts(tx, upload["repository_id"])
    dispatch = (await dispatches.get_by_id(tx, [upload["dispatch_id"]])).get(upload["dispatch_id"])
    head = (dispatch and dispatch["head_sha"]) or ""
    return Fetched(
        repository_id=upload["repository_id"],
        repo=upload["backend"],
        source="upload",
        kind=upload["kind"],
        object_id=-upload["id"],  # never one of GitHub's ids
        run_id=0,
        run_attempt=upload["run_attempt"],
        job_id=None,
        name=upload["job"],
        head_sha=head,
        trusted=await runs.is_trusted_dispatch(tx, settings, dispatch),
        private=facts.private is not False,
        size=upload["size"],
        sha256=upload["sha256"],
        failed=failed,
        workflow=upload["workflow"],
    )


def _given_fields(request: web.Request, claims: Claims) -> dict[str, str]:
    """Return the parameters; raises Rejected 400, and 403 for a run other than the token's."""
    names = ("kind", *FIELDS, "run_attempt", "event_type", "name")
    given = {name: clean(text)[:LONGEST] for name in names if (text := addresses.given(request, name))}
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


async def _admitted_backend(
    request: web.Request, claims: Claims, given: dict[str, str]
) -> tuple[Entry, TestedRun]:
    """Return the caller's entry and what the file's run was for; raises Rejected."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        entry = authorization.find_entry(await allowlists.read_in_force(tx), context.settings, claims)
        if entry is None:
            raise Rejected(
                403, "not_listed", f"{claims.repository} may not upload: it is not in the allowlist"
            )
        identity = dispatches.dispatch_id(given["delivery_id"], entry.repo)
        dispatch = (await dispatches.get_by_id(tx, [identity])).get(identity)
        if dispatch is None or dispatch["dispatched_at"] is None:
            run = _not_dispatched(entry, claims, given)
        else:
            token = request.headers.get(TOKEN_HEADER)
            required = token is not None or entry.callback_token != "optional"  # noqa: S105 - a mode
            key = await installation.random_key(tx, "callback")  # it is there since the dispatch
            if required and not authorization.token_belongs(token, dispatch, key, now=tx.now):
                detail = (
                    f"{TOKEN_HEADER} is missing or wrong: send client_payload.callback_token of this dispatch"
                )
                raise Rejected(403, "forbidden", detail)
            run = TestedRun(dispatch_id=dispatch["id"], event_type=None, commit_sha=None)
        if await count_since(tx, entry.key, tx.now - MINUTE) >= A_MINUTE:
            detail = f"{entry.repo} has uploaded {A_MINUTE} files in a minute, the most it may"
            raise Rejected(429, "rate_limited", detail, headers={"Retry-After": "60"})
        if await bytes_since(tx, entry.key, tx.now - DAY) >= DAILY_LIMIT:
            detail = f"{entry.repo} has uploaded {DAILY_LIMIT // MIB // 1024} GiB in a day, the most it may"
            raise Rejected(429, "rate_limited", detail, headers={"Retry-After": "3600"})
    return entry, run


def _not_dispatched(entry: Entry, claims: Claims, given: dict[str, str]) -> TestedRun:
    """Return what one of the backend's own runs was for, as the backend says; raises Rejected."""
    event, commit = given.get("event_type"), as_commit(given["delivery_id"])
    if event not in EVENTS:
        detail = f"that delivery was never dispatched to {entry.repo}; of a run that nobody dispatched, event_type says"
        raise Rejected(404, "unknown_dispatch", f"{detail} so: {', '.join(EVENTS)}")
    authorization.check_own_runs(entry, claims, "files of own runs")
    if commit is None:
        whose = "backend" if event == PUSH_EVENT else "upstream"
        raise Rejected(
            400, "invalid_parameter", f"delivery_id must be the {whose} commit of a run by {event}"
        )
    if event == PUSH_EVENT and given["kind"] == "log":
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
    if (request.content_length or 0) > UPLOAD_LIMIT:
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
        row["repository_id"] = await repository_of_backend(tx, entry.repo, claims.repository_id)
        identifier = await record_upload(tx, row)
        await fetches.want_fetches(tx, [_intent(identifier, row)])
        tx.enqueue("upload", str(identifier))
    return identifier


async def _to_file(request: web.Request, path: Path, caller: str) -> tuple[int, str]:
    """Stream the body to a file; returns its size and digest. Raises Rejected 408, 413, and 503 while others wait."""
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
                        if size > UPLOAD_LIMIT:
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
    detail = f"the file is larger than {UPLOAD_LIMIT // MIB} MiB, the most this address takes"
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
