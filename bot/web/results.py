"""POST /api/oot/results: an outside relay passes a report on. Shown on pages and in JSON, never on a pull request."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from bot import results
from bot.domain.envelope import parse_envelope
from bot.domain.wire import Malformed
from bot.errors import Rejected
from bot.store import PATIENCE
from bot.web.bodies import read_body
from bot.web.callback import LIMIT, count, refused
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.domain.envelope import Envelope

HEADER = "X-OOT-Relay-Token"


async def receive(request: web.Request) -> web.Response:
    """Check the shared token, read the envelope, take the report; everything is stored before the answer."""
    try:
        _check_token(request.headers.get(HEADER, ""), request.app[CONTEXT].settings.relay_token)
        envelope = _read(await read_body(request, limit=LIMIT))
        async with request.app[CONTEXT].store.transaction(patience=PATIENCE) as tx:
            answer = await results.accept_relayed(tx, request.app[CONTEXT].settings, envelope)
        if isinstance(answer, Rejected):
            raise answer
    except Rejected as refusal:
        raise refused(request, refusal) from None
    count(answer)
    return web.Response(body=msgspec.json.encode({"ok": True, **answer}), content_type="application/json")


def _check_token(given: str, expected: str | None) -> None:
    if not expected:
        raise Rejected(
            404, "not_found", "this bot takes no results from other relays: RELAY_TOKEN is not set"
        )
    if not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
        raise Rejected(401, "invalid_token", f"the header {HEADER} does not hold this bot's RELAY_TOKEN")


def _read(body: bytes) -> Envelope:
    try:
        return parse_envelope(body)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None
