"""Sessions of the administrator: signed cookies, until they expire or the administrator signs out.

Signing out ends every session of that ADMIN_TOKEN, copied cookies included: the database keeps the time before which
none of them may have begun.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import sqlalchemy as sa
from aiohttp import web

from bot.core.errors import StoreUnavailable
from bot.db.store import LOCK_TIMEOUT
from bot.ops.tables import admin_sign_out
from bot.web.access import FORM_KEY, SIGNED_IN
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

COOKIE = "ootbot_admin"
LIFE = 12 * 3600  # seconds
LOOKUP = 2.0  # seconds the database gets to say whether the session was signed out
OUT = admin_sign_out.c


@web.middleware
async def check_session(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record on a request whether its sender is signed in; without our cookie nothing is looked up."""
    begun = _begun(request) if request.headers.get("Cookie") else None
    if begun is not None:
        settings = request.app[CONTEXT].settings
        try:
            async with request.app[CONTEXT].store.read(answer_within=LOOKUP) as tx:
                request[SIGNED_IN] = begun >= await _not_before(tx, settings)
            if request[SIGNED_IN]:
                request[FORM_KEY] = form_key(request)
        except StoreUnavailable as error:
            request[SIGNED_IN] = error
    return await handler(request)


async def begin(request: web.Request) -> str:
    """Return the cookie for a browser that has just sent ADMIN_TOKEN: signed, with the time it expires."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=LOOKUP) as tx:
        begun = max(context.clock.now(), await _not_before(tx, context.settings))
    until = str(begun + LIFE * 1000)
    return f"{until}.{_signature(context.settings, until)}"


async def end_all(request: web.Request) -> None:
    """End every session of the ADMIN_TOKEN."""
    context = request.app[CONTEXT]
    async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        # later than any session so far, were it begun in this very millisecond
        ended = max(context.clock.now(), await _not_before(tx, context.settings)) + 1
        row = {"token_id": _token_id(context.settings), "not_before": ended}
        statement = tx.insert(admin_sign_out).values(row)
        await tx.run(
            statement.on_conflict_do_update(
                index_elements=["token_id"],
                set_={"not_before": statement.excluded.not_before},
                where=statement.excluded.not_before > OUT.not_before,
            )
        )


def form_key(request: web.Request) -> str:
    """Return the key that forms of the administrator's pages carry; another site cannot know it."""
    settings = request.app[CONTEXT].settings
    return _signature(settings, f"form {request.cookies.get(COOKIE, '')}")


def _begun(request: web.Request) -> int | None:
    """Return when the session of a valid cookie began (epoch milliseconds), None without one."""
    context = request.app[CONTEXT]
    until, _, given = request.cookies.get(COOKIE, "").partition(".")
    if not context.settings.admin_token or not (until.isascii() and until.isdigit() and len(until) < 16):
        return None
    signature = _signature(context.settings, until).encode()
    right = hmac.compare_digest(given.encode("utf-8", "replace"), signature)
    return int(until) - LIFE * 1000 if right and int(until) > context.clock.now() else None


async def _not_before(tx: Transaction, settings: Settings) -> int:
    query = sa.select(OUT.not_before).where(OUT.token_id == _token_id(settings))
    found: int | None = (await tx.run(query)).scalar()
    return found or 0


def _token_id(settings: Settings) -> str:
    return _signature(settings, "sessions")


def _signature(settings: Settings, words: str) -> str:
    key = (settings.admin_token or "").encode()
    return hmac.new(key, f"ootbot {words}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
