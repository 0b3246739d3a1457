"""Addresses that take reports: one or many of a backend, one that an outside relay passes on."""

from __future__ import annotations

import hmac
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from msgspec import UNSET

from bot.core import metrics
from bot.core.errors import Rejected
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.oot.allowlist import versions
from bot.oot.reports import acceptance, authorization, bodies, rows
from bot.oot.reports.acceptance import REPORT_BATCHER, ReportBatcher
from bot.oot.reports.authorization import Submission
from bot.oot.reports.bodies import Accepted, AcceptedOfBatch, BatchAnswer, RefusedOfBatch
from bot.oot.reports.oidc import VERIFIER, Claims, Verifier
from bot.oot.reports.report import Malformed, parse_envelope, parse_report, split_batch
from bot.web import openapi
from bot.web.access import CONTEXT
from bot.web.addresses import is_storable
from bot.web.bodies import SMALL, post_routes, read_body
from bot.web.limits import REFUSAL_LIMITER
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.oot.allowlist.entry import Entry
    from bot.oot.reports.acceptance import Answer
    from bot.oot.reports.report import CheckedEnvelope

REPORT_LIMIT = 2 * 1024 * 1024  # bytes of a report
RELAY_HEADERS = ("X-OOT-Relay-Token", "X-Hud-Internal-Bot")  # the second as today's relay sends it
BATCH_LIMIT = 16 * 1024 * 1024  # bytes of a batch
MIB = 1024 * 1024
BACKEND = openapi.Caller("backend", "an OpenID Connect token of the backend's CI, or a static key")
RELAY, RELAY_OF_HUD = (
    openapi.Caller(name, "the setting RELAY_TOKEN; without one the endpoint is disabled", header=header)
    for name, header in zip(("relay", "relayOfHud"), RELAY_HEADERS, strict=True)
)

REPORT_EXAMPLE: dict[str, Any] = {
    "event_type": "pull_request",
    "delivery_id": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "callback_token": "client_payload.callback_token of the dispatch",
    "payload": {
        "repository": {"full_name": "example-org/project"},
        "pull_request": {"number": 7, "head": {"sha": "6dcb09b5b57875f334f61aebed695e2e4193db5e"}},
    },
    "workflow": {
        "status": "completed",
        "conclusion": "failure",
        "name": "Device CI",
        "job_name": "build",
        "run_id": "4455",
        "run_attempt": 1,
        "url": "https://ci.example/4455",
        "test_results": {"passed": 8430, "failed": 1, "skipped": 20},
        "failed_tests": [{"name": "test_add", "file": "test_ops.py", "line": 12, "message": "expected 1"}],
        "environment": {"driver": "24.1"},
    },
}
ENVELOPE_EXAMPLE: dict[str, Any] = {
    "trusted": {
        "verified_repo": "example-org/backend",
        "downstream_repo_level": "L2",
        "ci_metrics": {"queue_time": 12.5, "execution_time": None},
    },
    "untrusted": {"callback_payload": REPORT_EXAMPLE},
}

UNKNOWN_CALLER: tuple[openapi.Refusal, ...] = (
    (401, "invalid_token", "the token or key is missing, invalid, expired or meant for others"),
    (403, "not_listed", "the caller is not in the allowlist, or only listens (L1)"),
    (403, "forbidden", "another identity, claim, callback token or run than agreed"),
    (429, "rate_limited", "too many reports, or too many refusals, in a minute"),
    (503, "issuer_unavailable", "the issuer's keys cannot be had now, and none known is the token's"),
    (503, "no_allowlist", "no valid allowlist has been read yet"),
)
MALFORMED: openapi.Refusal = (400, "invalid_report", "a field is missing or wrong; `detail` names it")
OF_A_JOB: tuple[openapi.Refusal, ...] = (
    (409, "conflict", "the job has ended otherwise, or before it began; the first report stands"),
    (413, "too_many_jobs", "the dispatch, or the commit nobody dispatched, has as many jobs as it may"),
)

_report = partial(
    openapi.Operation,
    summary="Report on one job",
    answer=bodies.Accepted,
    topic=openapi.RECEIVING,
    callers=[BACKEND],
    description="Backend, run and attempt are believed as the token names them; pull request, commit and level as the "
    "dispatch does. The same report again is answered with `duplicate` and changes nothing.",
    body=openapi.Content(
        bodies.Report,
        f"at most {REPORT_LIMIT // MIB} MiB; unknown fields are ignored",
        example=REPORT_EXAMPLE,
    ),
    refusals=[
        MALFORMED,
        *UNKNOWN_CALLER,
        (404, "unknown_dispatch", "that delivery was never dispatched to this backend"),
        *OF_A_JOB,
        *openapi.SENDING,
    ],
)
RELAYED: list[openapi.Refusal] = [
    MALFORMED,
    (401, "invalid_token", "the token is missing or wrong"),
    (404, "not_found", "the endpoint is disabled: no RELAY_TOKEN is set"),
    *OF_A_JOB,
    (429, "rate_limited", "too many refusals in a minute"),
    *openapi.SENDING,
]
ONCE: openapi.Refusal = (
    409,
    "duplicate",
    "the job's end was stored before, as the HUD answers: nothing was changed",
)
_relay = partial(
    openapi.Operation,
    summary="Pass on a report",
    answer=bodies.Accepted,
    topic=openapi.RECEIVING,
    callers=[RELAY, RELAY_OF_HUD],
    description="For a relay that dispatches by itself. Identity, level and times are taken from it. Such results "
    "are shown on pages and in JSON, never on a pull request.",
    body=openapi.Content(bodies.Envelope, f"at most {REPORT_LIMIT // MIB} MiB", example=ENVELOPE_EXAMPLE),
    named=[bodies.Echoed],
)
_report_many = openapi.Operation(
    "POST /api/oot/callback/batch",
    "reportMany",
    "Report on many jobs",
    bodies.BatchAnswer,
    topic=openapi.RECEIVING,
    callers=[BACKEND],
    description=f"1 to {bodies.MOST_REPORTS} reports in one transaction. Each is answered as it would have been "
    "alone, in order; what is wrong with the caller refuses all.",
    body=openapi.Content(
        bodies.Batch, f"at most {BATCH_LIMIT // MIB} MiB", example={"reports": [REPORT_EXAMPLE]}
    ),
    named=[bodies.AcceptedOfBatch, bodies.RefusedOfBatch],
    refusals=[MALFORMED, *UNKNOWN_CALLER, *openapi.SENDING],
)


async def accept_callback(request: web.Request) -> web.Response:
    """Accept one report of a backend; it is stored before the answer."""
    body = b""
    try:
        claims = await authenticate(request)
        await _refuse_large_from_unlisted(request, claims)
        body = await read_body(request, limit=REPORT_LIMIT, caller=claims.repository)
        answer = await _accept(request, claims, body)
        if answer.status == "ignored":
            request.app[REFUSAL_LIMITER].ignored(request)
    except Rejected as refusal:
        await acceptance.note_ping_refusal(request, refusal, body)
        raise count_refusal(request, refusal) from None
    count_answer(answer)
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def accept_callback_batch(request: web.Request) -> web.Response:
    """Accept a batch of reports of a backend together; an answer for each, in order."""
    try:
        claims = await authenticate(request)
        await _refuse_large_from_unlisted(request, claims)
        settings = request.app[CONTEXT].settings
        batch = await read_body(request, limit=BATCH_LIMIT, caller=claims.repository)
        read = [_parse_one(claims, body, settings) for body in _split(batch)]
        taken = iter(
            await request.app[REPORT_BATCHER].accept([item for item in read if isinstance(item, Submission)])
        )
        answers = [next(taken) if isinstance(item, Submission) else item for item in read]
        _raise_if_not_listed(answers)
        if any(not isinstance(answer, Rejected) and answer.status == "ignored" for answer in answers):
            request.app[REFUSAL_LIMITER].ignored(request)
    except Rejected as refusal:
        raise count_refusal(request, refusal) from None
    for answer in answers:
        count_answer(answer)
    body = msgspec.json.encode(BatchAnswer(reports=[_batch_item(answer) for answer in answers]))
    return web.Response(body=body, content_type="application/json")


async def authenticate(request: web.Request) -> Claims:
    """Return the caller's claims, from a token or static key; raises Rejected 401, 403 or 503."""
    context = request.app[CONTEXT]
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip() if scheme.casefold() == "bearer" else ""
    if token.startswith(rows.KEY_PREFIX) and is_storable(token):
        return await _claims_of_key(context, token)
    return await request.app[VERIFIER].verify(token)


async def _refuse_large_from_unlisted(request: web.Request, claims: Claims) -> None:
    """Raise Rejected for a large body from a backend that is not listed, before reading it.

    Every CI can get a token; parsing its batches would keep the others waiting.
    """
    if request.content_length is not None and request.content_length <= SMALL:
        return
    if await _read_entry(request, claims) is None:
        detail = f"{claims.repository} is not listed here: up to {SMALL // 1024} KiB are ignored, no more"
        raise Rejected(413, "body_too_large", detail, headers={"Connection": "close"})


async def _read_entry(request: web.Request, claims: Claims) -> Entry | None:
    """Return the caller's allowlist entry, None if the caller is ignored; raises Rejected."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        return authorization.find_entry(await versions.read_in_force(tx), context.settings, claims)


def count_refusal(request: web.Request, refusal: Rejected) -> Rejected:
    """Count a refusal and return the one to answer with."""
    answer = request.app[REFUSAL_LIMITER].answer(request, refusal)
    metrics.REPORTS.labels(answer.code).inc()
    return answer


def count_answer(answer: Answer) -> None:
    """Count an answer to one report."""
    if isinstance(answer, Rejected):
        metrics.REPORTS.labels(answer.code).inc()
    else:
        metrics.REPORTS.labels("duplicate" if answer.duplicate else answer.status).inc()


async def _claims_of_key(context: Context, key: str) -> Claims:
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        row = await rows.find_key(tx, key)
    if row is None:
        headers = {"WWW-Authenticate": 'Bearer realm="ootbot"'}
        raise Rejected(401, "invalid_token", "this key is unknown or was revoked", headers=headers)
    return Claims(repository=row["repo"], assigned=True, key_id=row["id"])


async def _accept(request: web.Request, claims: Claims, body: bytes) -> Accepted:
    """Return the answer to one report; raises Rejected. Ignored callers are ignored whatever they send."""
    settings = request.app[CONTEXT].settings
    try:
        submission = parse_submission(claims, body, settings)
    except Rejected:
        if settings.unlisted == "ignore" and await _read_entry(request, claims) is None:
            return Accepted(status="ignored")
        raise
    if acceptance.is_ping(submission.report.delivery_id):
        return await acceptance.accept_ping_report(request.app[CONTEXT], submission)
    (answer,) = await request.app[REPORT_BATCHER].accept([submission])
    if isinstance(answer, Rejected):
        raise answer
    return answer


def parse_submission(claims: Claims, body: bytes, settings: Settings) -> Submission:
    """Read a report; raises Rejected 400 naming the field."""
    try:
        report = parse_report(body, leniently=settings.reports == "lenient")
        return Submission(claims=claims, report=report)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


async def accept_relayed_report(request: web.Request) -> web.Response:
    """Accept a report that an outside relay passes on; it is stored before the answer."""
    try:
        settings = request.app[CONTEXT].settings
        token = next((request.headers[name] for name in RELAY_HEADERS if name in request.headers), "")
        _check_token(token, settings.relay_token)
        body = await read_body(request, limit=REPORT_LIMIT, caller=RELAY_HEADERS[0])
        envelope = _parse_relayed(body, settings)
        async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            answer = await acceptance.accept_relayed(tx, settings, envelope)
        if isinstance(answer, Rejected):
            raise answer
    except Rejected as refusal:
        raise count_refusal(request, refusal) from None
    count_answer(answer)
    ended_before = answer.duplicate is True and answer.status == "completed"
    if (
        ended_before and "/crcr/" in request.path
    ):  # as the HUD, to which an end is final; its relay takes it well
        raise Rejected(409, "duplicate", "the end of this job was stored before: nothing was changed")
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _check_token(token: str, expected: str | None) -> None:
    if not expected:
        raise Rejected(
            404, "not_found", "this bot takes no results from other relays: RELAY_TOKEN is not set"
        )
    if not hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode()):
        raise Rejected(
            401, "invalid_token", f"the header {RELAY_HEADERS[0]} does not hold this bot's RELAY_TOKEN"
        )


def _parse_relayed(body: bytes, settings: Settings) -> CheckedEnvelope:
    upstream = settings.upstream_repo[0] if settings.reports == "lenient" else None
    try:
        return parse_envelope(body, upstream=upstream)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


def setup(app: web.Application) -> None:
    """Add to the application what the endpoints verify and store reports with."""
    context = app[CONTEXT]
    settings = context.settings
    app[REPORT_BATCHER] = ReportBatcher(context)
    app[VERIFIER] = Verifier(
        settings.oidc_issuers, audiences=settings.oidc_audience, http=context.http, clock=context.clock
    )


def _endpoints(path: str, handler: Handler, operation: openapi.Operation) -> list[Endpoint]:
    """Return an address that is posted to: some write it with a slash at the end."""
    first, *others = post_routes(path, handler)
    return [Endpoint(first, operation), *map(Endpoint, others)]


def _report_at(path: str, name: str) -> list[Endpoint]:
    return _endpoints(path, accept_callback, _report(f"POST {path}", name))


def _relay_at(path: str, name: str, *also: openapi.Refusal) -> list[Endpoint]:
    return _endpoints(path, accept_relayed_report, _relay(f"POST {path}", name, refusals=[*RELAYED, *also]))


VIEWS = (
    *_report_at("/api/oot/callback", "report"),
    *_endpoints("/api/oot/callback/batch", accept_callback_batch, _report_many),
    *_report_at("/github/callback", "reportAtShortAddress"),
    *_relay_at("/api/oot/results", "relay"),
    *_relay_at("/api/crcr/results", "relayAtCrcrAddress", ONCE),
    *_relay_at("/crcr/results", "relayAtShortAddress", ONCE),
)


def _parse_one(claims: Claims, body: bytes, settings: Settings) -> Submission | Rejected:
    """Read one report of a batch; a refusal concerns only this one."""
    if len(body) > REPORT_LIMIT:
        return Rejected(
            413,
            "body_too_large",
            f"the report is larger than {REPORT_LIMIT // 2**20} MiB, the most it may be",
        )
    try:
        return parse_submission(claims, body, settings)
    except Rejected as refusal:
        return refusal


def _split(body: bytes) -> list[bytes]:
    try:
        return split_batch(body)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


def _raise_if_not_listed(answers: list[Answer]) -> None:
    """Raise the refusal that concerns the caller rather than a report."""
    for answer in answers:
        if isinstance(answer, Rejected) and answer.code == "not_listed":
            raise answer


def _batch_item(answer: Answer) -> AcceptedOfBatch | RefusedOfBatch:
    """Return an answer as part of a batch, with the status code it would have had alone."""
    if not isinstance(answer, Rejected):
        return AcceptedOfBatch(code=200, status=answer.status, duplicate=answer.duplicate)
    wait = answer.headers.get("Retry-After")
    return RefusedOfBatch(
        code=answer.status,
        error=answer.code,
        detail=answer.detail,
        retry_after=int(wait) if wait else UNSET,
    )
