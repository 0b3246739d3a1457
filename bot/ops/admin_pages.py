"""GET /admin...: the state of deliveries, tasks, sweeps and budgets, for whoever signed in with ADMIN_TOKEN."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.ingest import inbox
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import health
from bot.oot.publish import rows as publish_rows
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.ops import admin_api, admin_forms, overview_reads, sessions
from bot.queue import queue_admin
from bot.web import access, blocks, html, parameters
from bot.web.access import Hidden
from bot.web.app_keys import CONTEXT
from bot.web.html import refused, render
from bot.web.render_thread import RENDER_THREAD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TEMPLATES = Path(__file__).parent / "templates"
DAY, LATE = 86_400_000, 60_000  # milliseconds
FEW, PAGE = 20, 100
MOST_SHOWN = 200_000  # characters of a payload
TOO_OLD = "That page was too old, and nothing was done: press again."
NOTHING_HIDDEN = Hidden(names=frozenset(), ids=frozenset())


def setup(app: web.Application) -> None:
    """Add the pages, their templates and sessions, and /api/admin."""
    html.add_templates(app, TEMPLATES)
    app.middlewares.append(sessions.check_session)
    app.add_routes([*admin_api.routes, *routes, *admin_forms.of_features(app[CONTEXT].features)])


def page_for_admin(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a page for the administrator alone: others are asked to sign in; 404 while no token is set."""

    @functools.wraps(handler)
    async def guarded(request: web.Request) -> web.Response:
        make = functools.partial(refused, request, functools.partial(_checked, handler))
        first = access.is_signed_in(request)  # does not wait for pages that others ask for
        if first:
            await request.app[CONTEXT].intake.show_arrived()
        return private(await request.app[RENDER_THREAD].run(request, make, first=first))

    return guarded


async def _checked(
    handler: Callable[[web.Request], Awaitable[web.Response]], request: web.Request
) -> web.Response:
    if not request.app[CONTEXT].settings.admin_token:
        raise Rejected(404, "not_found", "this page is closed: set OOTBOT_ADMIN_TOKEN to open it")
    if not access.is_signed_in(request):
        said = next((name for name in ("wrong", "again", "out") if name in request.query), "")
        return render(request, "sign_in.html", status=401, said=said)
    return await handler(request)


def private(answer: web.Response) -> web.Response:
    """Return an answer that nobody may cache."""
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


@page_for_admin
async def overview(request: web.Request) -> web.Response:
    """Show what needs attention."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        silent = [
            one
            for one in await health.read_backends(tx, NOTHING_HIDDEN, 30, request.app[DAY_SUMS])
            if one.stale
        ]
        newest, in_force = await allowlists.newest(tx), await allowlists.in_force(tx)
        refusals = await publish_rows.comment_refusals(tx)
        dead = await queue_admin.tasks(tx, state="dead", before=None, limit=FEW)
        failing = await overview_reads.failing_tasks(tx, late=tx.now - LATE, limit=PAGE)
        parked = await overview_reads.deliveries(tx, state="parked", event=None, before=None, limit=FEW)
        counts = await overview_reads.delivery_counts(tx, since=tx.now - DAY)
        tasks = await overview_reads.task_counts(tx)
        sweeps = await overview_reads.sweeps(tx)
        sections = await blocks.admin_sections(context.features, tx, context.settings)
    apps = {app.app_id: app for app in (context.github, context.backend_github)}
    budgets = [one for app in apps.values() for one in await app.budget_usage()]
    return render(
        request,
        "admin.html",
        silent=silent,
        refusals=refusals,
        newest=newest,
        in_force=in_force,
        dead=dead,
        failing=failing,
        parked=parked,
        counts=counts,
        tasks=tasks,
        sweeps=sweeps,
        sections=sections,
        budgets=budgets,
        form_key=sessions.form_key(request),
        said=TOO_OLD if "again" in request.query else request.query.get("said", ""),
        failure=context.store.failure,
    )


@page_for_admin
async def deliveries(request: web.Request) -> web.Response:
    """Show deliveries, newest first."""
    state = parameters.choice(request, "state", ("", *overview_reads.STATES))
    event = parameters.given(request, "event")[:100]
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read() as tx:
        rows = await overview_reads.deliveries(
            tx, state=state or None, event=event or None, before=before, limit=PAGE + 1
        )
    return render(
        request,
        "admin_deliveries.html",
        rows=rows[:PAGE],
        following=rows[PAGE - 1]["id"] if len(rows) > PAGE else None,
        state=state,
        event=event,
        json_url="/api/admin/deliveries?" + parameters.query({"state": state, "event": event}),
        states=overview_reads.STATES,
    )


@page_for_admin
async def delivery(request: web.Request) -> web.Response:
    """Show one delivery: its payload, and what it caused."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.read() as tx:
        found = await inbox.find(tx, guid)
        if found is None:
            raise parameters.no_delivery(guid)
        tasks = await overview_reads.caused_tasks(tx, guid, limit=PAGE)
        dispatches = await overview_reads.caused_dispatches(tx, guid, limit=PAGE)
    body = found["body"]
    try:
        text = msgspec.json.format(body, indent=2).decode("utf-8", "replace")
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace")
    return render(
        request,
        "admin_delivery.html",
        found=found,
        size=len(body),
        payload=text[:MOST_SHOWN],
        cut=len(text) > MOST_SHOWN,
        tasks=tasks,
        dispatches=dispatches,
        form_key=sessions.form_key(request),
    )


@page_for_admin
async def tasks(request: web.Request) -> web.Response:
    """Show tasks, newest first, with a button for those that can run again."""
    state = parameters.choice(request, "state", ("", *queue_admin.STATES))
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read() as tx:
        rows = await queue_admin.tasks(tx, state=state or None, before=before, limit=PAGE + 1)
    return render(
        request,
        "admin_tasks.html",
        rows=rows[:PAGE],
        following=rows[PAGE - 1]["id"] if len(rows) > PAGE else None,
        state=state,
        json_url="/api/admin/tasks?" + parameters.query({"state": state}),
        states=queue_admin.STATES,
        form_key=sessions.form_key(request),
    )


routes: list[web.RouteDef] = [
    web.get("/admin", overview),
    web.get("/admin/deliveries", deliveries),
    web.get("/admin/deliveries/{guid}", delivery),
    web.get("/admin/tasks", tasks),
    *admin_forms.routes,
]
