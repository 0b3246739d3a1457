"""POST /admin/sign-in and sign-out, and the forms of capabilities."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.errors import Rejected
from bot.core.feature import load
from bot.ops import sessions
from bot.ops.admin_access import CLOSED, FORM, form_for_admin, notify, read_form, redirect
from bot.web import access
from bot.web.app_keys import CONTEXT
from bot.web.refusal_limiter import REFUSAL_LIMITER
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.core.feature import Features
    from bot.web.blocks import FormDone


async def sign_in(request: web.Request) -> web.Response:
    """Exchange ADMIN_TOKEN for a cookie."""
    settings = request.app[CONTEXT].settings
    if not settings.admin_token:
        raise Rejected(404, "not_found", CLOSED)
    form = await read_form(request)
    if not access.is_token(request, form.get("token", "")):
        detail = "that is not the ADMIN_TOKEN"
        refusal = request.app[REFUSAL_LIMITER].answer(request, Rejected(401, "invalid_token", detail))
        if refusal.status == 429:  # too many guesses
            raise refusal
        return redirect("/admin?wrong=1")
    answer = redirect("/admin")
    answer.set_cookie(
        sessions.COOKIE,
        await sessions.begin(request),
        max_age=sessions.LIFE,
        httponly=True,
        samesite="Strict",
        secure=settings.url.startswith("https://"),
    )
    return answer


@form_for_admin
async def sign_out(request: web.Request) -> web.Response:
    """End every session of the token, this one's cookie included."""
    await sessions.end_all(request)
    answer = redirect("/admin?out=1")
    answer.del_cookie(sessions.COOKIE)
    return answer


def routes_of_forms(features: Features) -> list[web.RouteDef]:
    """Return the routes of the forms that capabilities bring."""
    return [
        web.post(f"/admin{address}", form_for_admin(functools.partial(_submit, name)))
        for feature in features
        for address, name in feature.admin_forms.items()
    ]


async def _submit(name: str, request: web.Request) -> web.Response:
    done: FormDone = await load(name)(request, request[FORM])
    return redirect(done.path) if done.path else notify(done.words)


ENDPOINTS = (
    Endpoint(web.post("/admin/sign-in", sign_in)),
    Endpoint(web.post("/admin/sign-out", sign_out)),
)
