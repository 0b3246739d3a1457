"""POST /admin/...: sign in and out, run a task again, handle a delivery again.

A form counts only with the cookie of whoever signed in and the key that our own pages put into it: no other site can
send one.
"""

from __future__ import annotations

import functools
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from aiohttp import web

from bot.errors import Rejected
from bot.store import PATIENCE, operations
from bot.web import access, parameters
from bot.web.bodies import read_body
from bot.web.keys import CONTEXT
from bot.web.refusals import REFUSALS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Handler = Callable[[web.Request], Awaitable[web.Response]]

LIMIT = 10_000  # bytes of a form
MOST_FIELDS = 10


def from_our_page(handler: Handler) -> Handler:
    """Have a form count only when one of our own pages sent it, on behalf of whoever signed in.

    Others are refused with 403, people with a browser led to where they can sign in and press again.
    """

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        given = (await _form(request)).get("key", "").encode("utf-8", "replace")
        if access.is_signed_in(request) and hmac.compare_digest(given, access.form_key(request).encode()):
            return await handler(request)
        if "text/html" in request.headers.get("Accept", ""):
            return _see("/admin?again=1")
        raise Rejected(403, "forbidden", "sign in at /admin and use the button there")

    return checked


async def sign_in(request: web.Request) -> web.Response:
    """Take ADMIN_TOKEN and give a cookie for some hours."""
    settings = request.app[CONTEXT].settings
    if not settings.admin_token:
        raise Rejected(404, "not_found", "this page is closed: set OOTBOT_ADMIN_TOKEN to open it")
    form = await _form(request)
    if not access.is_token(request, form.get("token", "")):
        detail = "that is not the ADMIN_TOKEN"
        refusal = request.app[REFUSALS].answer(request, Rejected(401, "invalid_token", detail))
        if refusal.status == 429:  # somebody is guessing
            raise refusal
        return _see("/admin?wrong=1")
    answer = _see("/admin")
    answer.set_cookie(
        access.COOKIE,
        access.cookie(request),
        max_age=access.SIGNED_IN,
        httponly=True,
        samesite="Strict",
        secure=settings.url.startswith("https://"),
    )
    return answer


@from_our_page
async def sign_out(_request: web.Request) -> web.Response:
    """Take the cookie back."""
    answer = _see("/oot")
    answer.del_cookie(access.COOKIE)
    return answer


@from_our_page
async def retry(request: web.Request) -> web.Response:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction(patience=PATIENCE) as tx:
        found = await operations.retry(tx, identifier)
    if found is None or found["state"] not in operations.RETRYABLE:
        return _said(f"task {identifier} cannot run again: it is {found['state'] if found else 'gone'}")
    return _said(f"task {identifier} runs again")


@from_our_page
async def replay(request: web.Request) -> web.Response:
    """Have a delivery handled once more."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.transaction(patience=PATIENCE) as tx:
        found = await operations.replay(tx, guid)
    if found is None or found["state"] == "foreign":
        return _said(f"delivery {guid} cannot be handled again: it is {found['state'] if found else 'gone'}")
    return _said(f"delivery {guid} is handled again")


async def _form(request: web.Request) -> Mapping[str, str]:
    body = await read_body(request, limit=LIMIT)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        detail = f"a form of at most {MOST_FIELDS} fields is expected: use the button at /admin"
        raise Rejected(400, "invalid_form", detail) from None
    return {name: values[0] for name, values in fields.items()}


def _said(words: str) -> web.Response:
    return _see("/admin?" + urlencode({"said": words}))


def _see(address: str) -> web.Response:
    """Send on with GET, so that loading the page again sends nothing again."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "private, no-store"})


routes: list[web.RouteDef] = [
    web.post("/admin/sign-in", sign_in),
    web.post("/admin/sign-out", sign_out),
    web.post("/admin/tasks/{id}/retry", retry),
    web.post("/admin/deliveries/{guid}/replay", replay),
]
