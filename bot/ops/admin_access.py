"""Who may administer: pages for the signed-in administrator, JSON for holders of ADMIN_TOKEN, and checked forms.

A form is accepted only with the sign-in cookie and the key that our own pages put into it, against cross-site requests.
"""

from __future__ import annotations

import functools
import hmac
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.ops import sessions
from bot.web import access
from bot.web import operations as op
from bot.web.app_keys import CONTEXT
from bot.web.bodies import read_body
from bot.web.html import refused, render
from bot.web.render_thread import RENDER_THREAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.web.answers import Answer

    Handler = Callable[[web.Request], Awaitable[web.Response]]

LIMIT = 10_000  # bytes of a form
MOST_FIELDS = 10
FORM: web.RequestKey[Mapping[str, str]] = web.RequestKey("form")  # a body is read once
CLOSED = "this page is closed: set OOTBOT_ADMIN_TOKEN to open it"
NOT_ADMIN: tuple[op.Refusal, ...] = (
    (401, "unauthorized", "`Authorization` does not hold the ADMIN_TOKEN"),
    (404, "not_found", "nothing of that id is held, or no ADMIN_TOKEN is set and the endpoint is closed"),
    op.UNAVAILABLE,
)
describe_for_admin = partial(
    op.Operation, topic=op.Topic("Admin", "What is stuck, and how it goes on."), callers=[op.ADMIN]
)


def page_for_admin(handler: Handler) -> Handler:
    """Return a page for the administrator alone: others are asked to sign in; 404 while no token is set."""

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


async def _show_if_signed_in(handler: Handler, request: web.Request) -> web.Response:
    if not request.app[CONTEXT].settings.admin_token:
        raise Rejected(404, "not_found", CLOSED)
    if not access.is_signed_in(request):
        said = next((name for name in ("wrong", "again", "out") if name in request.query), "")
        return render(request, "sign_in.html", status=401, said=said)
    return await handler(request)


def json_for_admin(handler: Callable[[web.Request], Awaitable[Answer]], status: int = 200) -> Any:
    """Return an aiohttp handler that answers the administrator alone; 404 while no token is set."""

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
        if access.is_signed_in(request) and hmac.compare_digest(given, sessions.form_key(request).encode()):
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


def notify(words: str) -> web.Response:
    """Redirect to the overview, which shows these words."""
    return redirect("/admin?" + urlencode({"said": words}))


def redirect(address: str) -> web.Response:
    """Redirect with GET, so that reloading the page sends nothing again."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "private, no-store"})
