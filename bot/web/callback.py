"""POST /api/oot/callback and .../batch: a backend's CI reports on its jobs. Who calls, and what does it say?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot import metrics, trust
from bot.domain.envelope import split_batch
from bot.domain.wire import Malformed, parse_report
from bot.errors import Rejected
from bot.oidc import Claims
from bot.store import ASKED, allowlists, keys
from bot.trust import Given
from bot.web.bodies import read_body
from bot.web.keys import CONTEXT
from bot.web.limits import SMALL
from bot.web.refusals import REFUSALS
from bot.web.taking import TAKING

if TYPE_CHECKING:
    from bot.context import Context
    from bot.results import Answer

LIMIT = 2 * 1024 * 1024  # bytes of a report
BATCH_LIMIT = 16 * 1024 * 1024  # bytes of a batch


async def receive(request: web.Request) -> web.Response:
    """Verify the caller, read the report, take it; everything is stored before the answer."""
    try:
        claims = await who(request)
        await _greet(request, claims)
        report = given(claims, await read_body(request, limit=LIMIT))
        (answer,) = await request.app[TAKING].take([report])
        if isinstance(answer, Rejected):
            raise answer
        if answer["status"] == "ignored":
            request.app[REFUSALS].ignored(request)
    except Rejected as refusal:
        raise refused(request, refusal) from None
    count(answer)
    return web.Response(body=msgspec.json.encode({"ok": True, **answer}), content_type="application/json")


async def receive_batch(request: web.Request) -> web.Response:
    """Verify the caller, read every report alone, take all of them together; an answer for each, in order."""
    try:
        claims = await who(request)
        await _greet(request, claims)
        read = [_read(claims, body) for body in _split(await read_body(request, limit=BATCH_LIMIT))]
        taken = iter(await request.app[TAKING].take([one for one in read if isinstance(one, Given)]))
        answers = [next(taken) if isinstance(one, Given) else one for one in read]
        _refuse_strangers(answers)
        if any(not isinstance(one, Rejected) and one["status"] == "ignored" for one in answers):
            request.app[REFUSALS].ignored(request)
    except Rejected as refusal:
        raise refused(request, refusal) from None
    for answer in answers:
        count(answer)
    body = {"ok": True, "reports": [_shown(answer) for answer in answers]}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def who(request: web.Request) -> Claims:
    """Return who calls, by token or static key; raises Rejected 401, 403 or 503."""
    context = request.app[CONTEXT]
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip() if scheme.casefold() == "bearer" else ""
    if token.startswith(keys.PREFIX):
        return await _of_key(context, token)
    return await context.verifier.verify(token)


async def _greet(request: web.Request, claims: Claims) -> None:
    """Raise Rejected where somebody who is not listed sends much: it is neither read nor parsed.

    Whoever runs any CI can have a token; a batch of theirs would keep everybody else waiting.
    """
    if request.content_length is not None and request.content_length <= SMALL:
        return
    context = request.app[CONTEXT]
    async with context.store.read(silence=ASKED) as tx:
        entry = trust.listed(await allowlists.in_force(tx), context.settings, claims)
    if entry is None:
        detail = f"{claims.repository} is not listed here: up to {SMALL // 1024} KiB are ignored, no more"
        raise Rejected(413, "body_too_large", detail, headers={"Connection": "close"})


def refused(request: web.Request, refusal: Rejected) -> Rejected:
    """Count a refusal and return what to tell the caller."""
    said = request.app[REFUSALS].answer(request, refusal)
    metrics.REPORTS.labels(said.code).inc()
    return said


def count(answer: Answer) -> None:
    """Count an answer to one report."""
    if isinstance(answer, Rejected):
        metrics.REPORTS.labels(answer.code).inc()
    else:
        metrics.REPORTS.labels("duplicate" if "duplicate" in answer else answer["status"]).inc()


async def _of_key(context: Context, key: str) -> Claims:
    async with context.store.read(silence=ASKED) as tx:
        row = await keys.find(tx, key)
    if row is None:
        headers = {"WWW-Authenticate": 'Bearer realm="ootbot"'}
        raise Rejected(401, "invalid_token", "this key is unknown or was revoked", headers=headers)
    return Claims(repository=row["repo"], assigned=True, key_id=row["id"])


def given(claims: Claims, body: bytes) -> Given:
    """Read a report; raises Rejected 400 naming the field."""
    try:
        return Given(claims=claims, report=parse_report(body))
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


def _read(claims: Claims, body: bytes) -> Given | Rejected:
    """Read one report of a batch; a refusal is its own."""
    if len(body) > LIMIT:
        return Rejected(
            413, "body_too_large", f"the report is larger than {LIMIT // 2**20} MiB, the most it may be"
        )
    try:
        return given(claims, body)
    except Rejected as refusal:
        return refusal


def _split(body: bytes) -> list[bytes]:
    try:
        return split_batch(body)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


def _refuse_strangers(answers: list[Answer]) -> None:
    """Raise the refusal that is about the caller and not about any report."""
    for answer in answers:
        if isinstance(answer, Rejected) and answer.code == "not_listed":
            raise answer


def _shown(answer: Answer) -> dict[str, Any]:
    """Return an answer as it stands in a batch: with the status code it would have had alone."""
    if not isinstance(answer, Rejected):
        return {"code": 200, "ok": True, **answer}
    shown = {"code": answer.status, "ok": False, "error": answer.code, "detail": answer.detail}
    wait = answer.headers.get("Retry-After")
    return shown | {"retry_after": int(wait)} if wait else shown
