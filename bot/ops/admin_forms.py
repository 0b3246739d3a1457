"""POST /admin/...: sign in and out, run a task or handle a delivery again, and the forms of capabilities.

A form is accepted only with the sign-in cookie and the key that our own pages put into it, against cross-site requests.
"""

from __future__ import annotations

import functools
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from aiohttp import web

from bot.core.errors import Rejected
from bot.core.feature import load
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import inbox
from bot.ops import sessions
from bot.queue import queue_admin
from bot.web import access, parameters
from bot.web.app_keys import CONTEXT
from bot.web.bodies import read_body
from bot.web.refusal_limiter import REFUSAL_LIMITER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.core.feature import Features
    from bot.web.blocks import FormDone

    Handler = Callable[[web.Request], Awaitable[web.Response]]

LIMIT = 10_000  # bytes of a form
MOST_FIELDS = 10
FORM: web.RequestKey[Mapping[str, str]] = web.RequestKey("form")  # a body is read once


def checks_form_key(handler: Handler) -> Handler:
    """Accept a form only from one of our own pages, sent by whoever signed in.

    Others get 403; browsers are sent to where one can sign in and press again.
    """

    @functools.wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        request[FORM] = form = await _form(request)
        given = form.get("key", "").encode("utf-8", "replace")
        if access.is_signed_in(request) and hmac.compare_digest(given, sessions.form_key(request).encode()):
            await request.app[CONTEXT].intake.show_arrived()
            return await handler(request)
        if "text/html" in request.headers.get("Accept", ""):
            return _redirect("/admin?again=1")
        raise Rejected(403, "forbidden", "sign in at /admin and use the button there")

    return checked


async def sign_in(request: web.Request) -> web.Response:
    """Exchange ADMIN_TOKEN for a cookie."""
    settings = request.app[CONTEXT].settings
    if not settings.admin_token:
        raise Rejected(404, "not_found", "this page is closed: set OOTBOT_ADMIN_TOKEN to open it")
    form = await _form(request)
    if not access.is_token(request, form.get("token", "")):
        detail = "that is not the ADMIN_TOKEN"
        refusal = request.app[REFUSAL_LIMITER].answer(request, Rejected(401, "invalid_token", detail))
        if refusal.status == 429:  # too many guesses
            raise refusal
        return _redirect("/admin?wrong=1")
    answer = _redirect("/admin")
    answer.set_cookie(
        sessions.COOKIE,
        await sessions.begin(request),
        max_age=sessions.LIFE,
        httponly=True,
        samesite="Strict",
        secure=settings.url.startswith("https://"),
    )
    return answer


@checks_form_key
async def sign_out(request: web.Request) -> web.Response:
    """End every session of the token, this one's cookie included."""
    await sessions.end_all(request)
    answer = _redirect("/admin?out=1")
    answer.del_cookie(sessions.COOKIE)
    return answer


@checks_form_key
async def retry(request: web.Request) -> web.Response:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await queue_admin.retry(tx, identifier)
    if found is None or found["state"] not in queue_admin.RETRYABLE:
        return _notice(f"task {identifier} cannot run again: it is {found['state'] if found else 'gone'}")
    return _notice(f"task {identifier} runs again")


@checks_form_key
async def replay(request: web.Request) -> web.Response:
    """Have a delivery handled again."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await inbox.replay(tx, guid)
    if found is None or found["state"] == "foreign":
        return _notice(
            f"delivery {guid} cannot be handled again: it is {found['state'] if found else 'gone'}"
        )
    return _notice(f"delivery {guid} is handled again")


def of_features(features: Features) -> list[web.RouteDef]:
    """Return the forms that capabilities bring."""
    return [
        web.post(f"/admin{address}", checks_form_key(functools.partial(_of_feature, name)))
        for feature in features
        for address, name in feature.admin_forms.items()
    ]


async def _of_feature(name: str, request: web.Request) -> web.Response:
    done: FormDone = await load(name)(request, request[FORM])
    return _redirect(done.path) if done.path else _notice(done.words)


async def _form(request: web.Request) -> Mapping[str, str]:
    body = await read_body(request, limit=LIMIT)
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError:
        detail = f"a form of at most {MOST_FIELDS} fields is expected: use the button at /admin"
        raise Rejected(400, "invalid_form", detail) from None
    return {name: values[0] for name, values in fields.items()}


def _notice(words: str) -> web.Response:
    return _redirect("/admin?" + urlencode({"said": words}))


def _redirect(address: str) -> web.Response:
    """Redirect with GET, so that reloading the page sends nothing again."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "private, no-store"})


routes: list[web.RouteDef] = [
    web.post("/admin/sign-in", sign_in),
    web.post("/admin/sign-out", sign_out),
    web.post("/admin/tasks/{id}/retry", retry),
    web.post("/admin/deliveries/{guid}/replay", replay),
]
