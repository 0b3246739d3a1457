"""GET /admin: the state of deliveries, tasks, sweeps and budgets; signing in and out, and the forms of capabilities."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.errors import Rejected
from bot.core.feature import load
from bot.core.files import find_shortage
from bot.ingest import repositories
from bot.oot.allowlist import versions
from bot.oot.publish import rows as publish_rows
from bot.oot.statistics import health
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.ops import admin_access, deliveries, tasks
from bot.ops.admin_access import (
    CLOSED,
    FORM,
    form_for_admin,
    page_for_admin,
    read_form,
    redirect,
    redirect_with_notice,
)
from bot.web import access, blocks
from bot.web.access import CONTEXT, Hidden
from bot.web.html import render
from bot.web.limits import REFUSAL_LIMITER
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.core.feature import Features
    from bot.web.blocks import FormDone

DAY, LATE = 86_400_000, 60_000  # milliseconds
FEW, PAGE = 20, 100
TOO_OLD = "That page was too old, and nothing was done: press again."
NOTHING_HIDDEN = Hidden(names=frozenset(), ids=frozenset())


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
        admin_access.SESSION_COOKIE,
        await admin_access.begin_session(request),
        max_age=admin_access.SESSION_LIFE,
        httponly=True,
        samesite="Strict",
        secure=settings.url.startswith("https://"),
    )
    return answer


@form_for_admin
async def sign_out(request: web.Request) -> web.Response:
    """End every session of the token, this one's cookie included."""
    await admin_access.end_sessions(request)
    answer = redirect("/admin?out=1")
    answer.del_cookie(admin_access.SESSION_COOKIE)
    return answer


def routes_of_forms(features: Features) -> list[web.RouteDef]:
    """Return the routes of the capabilities' forms."""
    return [
        web.post(f"/admin{address}", form_for_admin(functools.partial(_submit, name)))
        for feature in features
        for address, name in feature.admin_forms.items()
    ]


SIGN_IN_ENDPOINTS = (
    Endpoint(web.post("/admin/sign-in", sign_in)),
    Endpoint(web.post("/admin/sign-out", sign_out)),
)


@page_for_admin
async def show_overview(request: web.Request) -> web.Response:
    """Show what needs attention."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        silent = [
            backend
            for backend in await health.read_backends(tx, NOTHING_HIDDEN, 30, request.app[DAY_SUMS])
            if backend.stale
        ]
        newest, in_force = await versions.read_newest(tx), await versions.read_in_force(tx)
        refusals = await publish_rows.comment_refusals(tx)
        moved, unreached = await repositories.read_problems(tx, context.settings.upstream_repo)
        dead = await tasks.list_tasks(tx, state="dead", before=None, limit=FEW)
        failing = await deliveries.failing_tasks(tx, late=tx.now - LATE, limit=PAGE)
        parked = await deliveries.list_deliveries(tx, state="parked", event=None, before=None, limit=FEW)
        counts = await deliveries.delivery_counts(tx, since=tx.now - DAY)
        task_counts = await deliveries.task_counts(tx)
        sweeps = await deliveries.list_sweeps(tx)
        sections = await blocks.admin_sections(context.features, tx, context.settings)
    apps = {app.app_id: app for app in (context.github, context.backend_github)}
    budgets = [budget for app in apps.values() for budget in await app.budget_usage()]
    return render(
        request,
        "admin.html",
        silent=silent,
        refusals=refusals,
        unreached=[*moved, *unreached],
        newest=newest,
        in_force=in_force,
        dead=dead,
        failing=failing,
        parked=parked,
        counts=counts,
        tasks=task_counts,
        sweeps=sweeps,
        sections=sections,
        budgets=budgets,
        form_key=admin_access.form_key(request),
        said=TOO_OLD if "again" in request.query else request.query.get("said", ""),
        failure=context.store.failure,
        shortage=find_shortage(context.settings.data_dir),
    )


VIEWS = (
    *deliveries.DELIVERY_ENDPOINTS,
    *tasks.TASK_ENDPOINTS,
    Endpoint(web.get("/admin", show_overview)),
    *SIGN_IN_ENDPOINTS,
)


def set_up_administration(app: web.Application) -> None:
    """Add sessions, and the forms of capabilities."""
    app.middlewares.append(admin_access.check_session)
    app.add_routes(routes_of_forms(app[CONTEXT].features))


async def _submit(name: str, request: web.Request) -> web.Response:
    done: FormDone = await load(name)(request, request[FORM])
    return redirect(done.path) if done.path else redirect_with_notice(done.words)
