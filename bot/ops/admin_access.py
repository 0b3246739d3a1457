"""Who may administer: sessions in signed cookies, pages, JSON for holders of ADMIN_TOKEN, and checked forms."""

from __future__ import annotations

import functools
import hashlib
import hmac
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

import msgspec
import sqlalchemy as sa
from aiohttp import web

from bot.core.errors import Rejected, StoreUnavailable
from bot.db.installation import admin_sign_out
from bot.db.store import LOCK_TIMEOUT
from bot.web import access, openapi
from bot.web.access import CONTEXT, FORM_KEY, SIGNED_IN
from bot.web.bodies import read_body
from bot.web.html import refused, render
from bot.web.page_cache import RENDER_THREAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp.typedefs import Handler as Handler_

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.answers import Answer

    Handler = Callable[[web.Request], Awaitable[web.Response]]

SESSION_COOKIE = "ootbot_admin"
SESSION_LIFE = 12 * 3600  # seconds
LOOKUP = 2.0  # seconds the database gets to say whether the session was signed out
OUT = admin_sign_out.c
LIMIT = 10_000  # bytes of a form
MOST_FIELDS = 10
FORM: web.RequestKey[Mapping[str, str]] = web.RequestKey("form")  # a body is read once
CLOSED = "this page is closed: set OOTBOT_ADMIN_TOKEN to open it"
NOT_ADMIN: tuple[openapi.Refusal, ...] = (
    (401, "unauthorized", "`Authorization` does not hold the ADMIN_TOKEN"),
    (404, "not_found", "nothing of that id is held, or no ADMIN_TOKEN is set and the endpoint is closed"),
    openapi.UNAVAILABLE,
)
describe_for_admin = partial(
    openapi.Operation,
    topic=openapi.Topic("Admin", "What is stuck, and how it goes on."),
    callers=[openapi.ADMIN],
)


@web.middleware
async def check_session(request: web.Request, handler: Handler_) -> web.StreamResponse:
    """Note on a request whether its sender is signed in; without our cookie the database is not asked."""
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


async def begin_session(request: web.Request) -> str:
    """Return the cookie for a browser that has just sent ADMIN_TOKEN: signed, with the time it expires."""
    context = request.app[CONTEXT]
    async with context.store.read(answer_within=LOOKUP) as tx:
        begun = max(context.clock.now(), await _not_before(tx, context.settings))
    until = str(begun + SESSION_LIFE * 1000)
    return f"{until}.{_signature(context.settings, until)}"


async def end_sessions(request: web.Request) -> None:
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
    """Return the key that the administrator's forms carry; no other site can know it."""
    settings = request.app[CONTEXT].settings
    return _signature(settings, f"form {request.cookies.get(SESSION_COOKIE, '')}")


def page_for_admin(handler: Handler) -> Handler:
    """Restrict a page to the administrator: others are asked to sign in; 404 while no token is set."""

    @functools.wraps(handler)
    async def guarded(request: web.Request) -> web.Response:
        make = partial(refused, request, partial(_show_if_signed_in, handler))
        first = access.is_signed_in(request)  # does not wait for pages that others ask for
        if first:
            await request.app[CONTEXT].intake.show_arrived()
        answer = await request.app[RENDER_THREAD].run(request, make, first=first)
        answer.headers["Cache-Control"] = "private, no-store"
        return answer

    return guarded


def json_for_admin(handler: Callable[[web.Request], Awaitable[Answer]], status: int = 200) -> Any:
    """Restrict a JSON handler to the administrator; 404 while no token is set."""

    async def guarded(request: web.Request) -> web.Response:
        access.require_admin(request)
        await request.app[CONTEXT].intake.show_arrived()
        body = msgspec.json.encode(await handler(request))
        return web.Response(body=body, status=status, content_type="application/json")

    return guarded


def form_for_admin(handler: Handler) -> Handler:
    """Accept a form only from one of our own pages, sent by the signed-in administrator.

    Others get 403; browsers are sent to where one can sign in and press again.
    """

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        request[FORM] = form = await read_form(request)
        given = form.get("key", "").encode("utf-8", "replace")
        if access.is_signed_in(request) and hmac.compare_digest(given, form_key(request).encode()):
            await request.app[CONTEXT].intake.show_arrived()
            return await handler(request)
        if "text/html" in request.headers.get("Accept", ""):
            return redirect("/admin?again=1")
        raise Rejected(403, "forbidden", "sign in at /admin and use the button there")

    return checked


async def read_form(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form; raises Rejected."""
    body = await read_body(request, limit=LIMIT)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        detail = f"a form of at most {MOST_FIELDS} fields is expected: use the button at /admin"
        raise Rejected(400, "invalid_form", detail) from None
    return {name: values[0] for name, values in fields.items()}


def redirect_with_notice(words: str) -> web.Response:
    """Redirect to the overview with a message."""
    return redirect("/admin?" + urlencode({"said": words}))


def redirect(address: str) -> web.Response:
    """Redirect with GET, so that reloading the page sends nothing again."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "private, no-store"})


def _begun(request: web.Request) -> int | None:
    """Return when the session of a valid cookie began (epoch milliseconds), None without one."""
    context = request.app[CONTEXT]
    until, _, given = request.cookies.get(SESSION_COOKIE, "").partition(".")
    if not context.settings.admin_token or not (until.isascii() and until.isdigit() and len(until) < 16):
        return None
    signature = _signature(context.settings, until).encode()
    right = hmac.compare_digest(given.encode("utf-8", "replace"), signature)
    return int(until) - SESSION_LIFE * 1000 if right and int(until) > context.clock.now() else None


async def _not_before(tx: Transaction, settings: Settings) -> int:
    query = sa.select(OUT.not_before).where(OUT.token_id == _token_id(settings))
    signed_out_at: int | None = (await tx.run(query)).scalar()
    return signed_out_at or 0


def _token_id(settings: Settings) -> str:
    return _signature(settings, "sessions")


def _signature(settings: Settings, words: str) -> str:
    key = (settings.admin_token or "").encode()
    return hmac.new(key, f"ootbot {words}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


async def _show_if_signed_in(handler: Handler, request: web.Request) -> web.Response:
    if not request.app[CONTEXT].settings.admin_token:
        raise Rejected(404, "not_found", CLOSED)
    if not access.is_signed_in(request):
        said = next((name for name in ("wrong", "again", "out") if name in request.query), "")
        return render(request, "sign_in.html", status=401, said=said)
    return await handler(request)
