"""GET /admin: the state of deliveries, tasks, sweeps and budgets, for the signed-in administrator."""

from __future__ import annotations

from aiohttp import web

from bot.core.disk import find_shortage
from bot.ingest import pinned
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import health
from bot.oot.publish import rows as publish_rows
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.ops import deliveries, overview_rows, sessions, sign_in, tasks
from bot.ops.admin_access import page_for_admin
from bot.queue import queue_admin
from bot.web import blocks
from bot.web.access import Hidden
from bot.web.app_keys import CONTEXT
from bot.web.html import render
from bot.web.view import Endpoint

DAY, LATE = 86_400_000, 60_000  # milliseconds
FEW, PAGE = 20, 100
TOO_OLD = "That page was too old, and nothing was done: press again."
NOTHING_HIDDEN = Hidden(names=frozenset(), ids=frozenset())


@page_for_admin
async def show_overview(request: web.Request) -> web.Response:
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
        moved, unreached = await pinned.read_problems(tx, context.settings.upstream_repo)
        dead = await queue_admin.tasks(tx, state="dead", before=None, limit=FEW)
        failing = await overview_rows.failing_tasks(tx, late=tx.now - LATE, limit=PAGE)
        parked = await overview_rows.list_deliveries(tx, state="parked", event=None, before=None, limit=FEW)
        counts = await overview_rows.delivery_counts(tx, since=tx.now - DAY)
        task_counts = await overview_rows.task_counts(tx)
        sweeps = await overview_rows.list_sweeps(tx)
        sections = await blocks.admin_sections(context.features, tx, context.settings)
    apps = {app.app_id: app for app in (context.github, context.backend_github)}
    budgets = [one for app in apps.values() for one in await app.budget_usage()]
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
        form_key=sessions.form_key(request),
        said=TOO_OLD if "again" in request.query else request.query.get("said", ""),
        failure=context.store.failure,
        shortage=find_shortage(context.settings.data_dir),
    )


VIEWS = (
    *deliveries.ENDPOINTS,
    *tasks.ENDPOINTS,
    Endpoint(web.get("/admin", show_overview)),
    *sign_in.ENDPOINTS,
)


def setup(app: web.Application) -> None:
    """Add sessions, and the forms of capabilities."""
    app.middlewares.append(sessions.check_session)
    app.add_routes(sign_in.routes_of_forms(app[CONTEXT].features))
