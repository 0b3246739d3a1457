"""Handlers of reports: one or many of a backend, one that an outside relay passes on."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from msgspec import UNSET

from bot.core import metrics
from bot.core.errors import Rejected
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.oot.allowlist import rows as allowlists
from bot.oot.reports import acceptance, authorization, pings
from bot.oot.reports.authorization import Submission
from bot.oot.reports.bodies import Accepted, AcceptedOfBatch, BatchAnswer, RefusedOfBatch
from bot.oot.reports.envelope import parse_envelope, split_batch
from bot.oot.reports.oidc import VERIFIER, Claims, Verifier
from bot.oot.reports.report import Malformed, parse_report
from bot.oot.reports.report_batcher import REPORT_BATCHER, ReportBatcher
from bot.oot.reports.store import static_keys
from bot.web.app_keys import CONTEXT
from bot.web.bodies import SMALL, read_body
from bot.web.parameters import is_storable
from bot.web.refusal_limiter import REFUSAL_LIMITER

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.reports.acceptance import Answer
    from bot.oot.reports.envelope import Envelope

LIMIT = 2 * 1024 * 1024  # bytes of a report
RELAY_HEADERS = ("X-OOT-Relay-Token", "X-Hud-Internal-Bot")  # the second as today's relay sends it
BATCH_LIMIT = 16 * 1024 * 1024  # bytes of a batch


async def callback(request: web.Request) -> web.Response:
    """Accept one report of a backend; it is stored before the answer."""
    body = b""
    try:
        claims = await authenticate(request)
        await _refuse_large_from_unlisted(request, claims)
        body = await read_body(request, limit=LIMIT, caller=claims.repository)
        answer = await _accept(request, claims, body)
        if answer.status == "ignored":
            request.app[REFUSAL_LIMITER].ignored(request)
    except Rejected as refusal:
        await pings.note_refusal(request, refusal, body)
        raise refused(request, refusal) from None
    count(answer)
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


async def callback_batch(request: web.Request) -> web.Response:
    """Accept a batch of reports of a backend together; an answer for each, in order."""
    try:
        claims = await authenticate(request)
        await _refuse_large_from_unlisted(request, claims)
        settings = request.app[CONTEXT].settings
        batch = await read_body(request, limit=BATCH_LIMIT, caller=claims.repository)
        read = [_parse_one(claims, body, settings) for body in _split(batch)]
        taken = iter(
            await request.app[REPORT_BATCHER].accept([one for one in read if isinstance(one, Submission)])
        )
        answers = [next(taken) if isinstance(one, Submission) else one for one in read]
        _raise_if_not_listed(answers)
        if any(not isinstance(one, Rejected) and one.status == "ignored" for one in answers):
            request.app[REFUSAL_LIMITER].ignored(request)
    except Rejected as refusal:
        raise refused(request, refusal) from None
    for answer in answers:
        count(answer)
    body = msgspec.json.encode(BatchAnswer(reports=[_batch_item(answer) for answer in answers]))
    return web.Response(body=body, content_type="application/json")


async def authenticate(request: web.Request) -> Claims:
    """Return the caller's claims, from a token or static key; raises Rejected 401, 403 or 503."""
    context = request.app[CONTEXT]
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip() if scheme.casefold() == "bearer" else ""
    if token.startswith(static_keys.PREFIX) and is_storable(token):
        return await _claims_of_key(context, token)
    return await request.app[VERIFIER].verify(token)


async def _refuse_large_from_unlisted(request: web.Request, claims: Claims) -> None:
    """Raise Rejected for a large body from a backend that is not listed, before reading it.

    Every CI can get a token; parsing its batches would keep the others waiting.
    """
    if request.content_length is not None and request.content_length <= SMALL:
        return
    if await _entry(request, claims) is None:
        detail = f"{claims.repository} is not listed here: up to {SMALL // 1024} KiB are ignored, no more"
        raise Rejected(413, "body_too_large", detail, headers={"Connection": "close"})


async def _entry(request: web.Request, claims: Claims) -> Entry | None:
    """Return the caller's allowlist entry, None when it is ignored; raises Rejected."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        return authorization.find_entry(await allowlists.in_force(tx), context.settings, claims)


def refused(request: web.Request, refusal: Rejected) -> Rejected:
    """Count a refusal and return the one to answer with."""
    answer = request.app[REFUSAL_LIMITER].answer(request, refusal)
    metrics.REPORTS.labels(answer.code).inc()
    return answer


def count(answer: Answer) -> None:
    """Count an answer to one report."""
    if isinstance(answer, Rejected):
        metrics.REPORTS.labels(answer.code).inc()
    else:
        metrics.REPORTS.labels("duplicate" if answer.duplicate else answer.status).inc()


async def _claims_of_key(context: Context, key: str) -> Claims:
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        row = await static_keys.find_key(tx, key)
    if row is None:
        headers = {"WWW-Authenticate": 'Bearer realm="ootbot"'}
        raise Rejected(401, "invalid_token", "this key is unknown or was revoked", headers=headers)
    return Claims(repository=row["repo"], assigned=True, key_id=row["id"])


async def _accept(request: web.Request, claims: Claims, body: bytes) -> Accepted:
    """Return the answer to one report; raises Rejected. Callers that are ignored are, whatever they send."""
    settings = request.app[CONTEXT].settings
    try:
        submission = parse_submission(claims, body, settings)
    except Rejected:
        if settings.unlisted == "ignore" and await _entry(request, claims) is None:
            return Accepted(status="ignored")
        raise
    if pings.is_ping(submission.report.delivery_id):
        return await pings.accept_report(request.app[CONTEXT], submission)
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


def _parse_one(claims: Claims, body: bytes, settings: Settings) -> Submission | Rejected:
    """Read one report of a batch; a refusal concerns only this one."""
    if len(body) > LIMIT:
        return Rejected(
            413, "body_too_large", f"the report is larger than {LIMIT // 2**20} MiB, the most it may be"
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


async def results(request: web.Request) -> web.Response:
    """Accept a report that an outside relay passes on; it is stored before the answer."""
    try:
        settings = request.app[CONTEXT].settings
        given = next((request.headers[name] for name in RELAY_HEADERS if name in request.headers), "")
        _check_token(given, settings.relay_token)
        body = await read_body(request, limit=LIMIT, caller=RELAY_HEADERS[0])
        envelope = _parse_relayed(body, settings)
        async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            answer = await acceptance.accept_relayed(tx, settings, envelope)
        if isinstance(answer, Rejected):
            raise answer
    except Rejected as refusal:
        raise refused(request, refusal) from None
    count(answer)
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


def _parse_relayed(body: bytes, settings: Settings) -> Envelope:
    upstream = settings.upstream_repo[0] if settings.reports == "lenient" else None
    try:
        return parse_envelope(body, upstream=upstream)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


def setup(app: web.Application) -> None:
    """Add what the endpoints verify and store reports with."""
    context = app[CONTEXT]
    settings = context.settings
    app[REPORT_BATCHER] = ReportBatcher(context)
    app[VERIFIER] = Verifier(
        settings.oidc_issuers, audiences=settings.oidc_audience, http=context.http, clock=context.clock
    )
