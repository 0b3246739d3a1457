"""/healthz, /readyz and /metrics: liveness, readiness and Prometheus metrics."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import prometheus_client
from aiohttp import web
from msgspec import Struct

from bot.core import disk
from bot.core import metrics as counts
from bot.core.errors import StoreUnavailable
from bot.core.feature import load_each
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.ingest import backlog, pinned, sweeps
from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.source import on_github
from bot.web import access
from bot.web import operations as op
from bot.web.answers import Answer, one_of, send
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.backlog import Backlog
    from bot.web.access import Hidden

RECENT = 15  # seconds
ONLY_FOR_ADMIN = "see /admin or `ootbot doctor`, or ask with the ADMIN_TOKEN"
TOO_OLD = 24 * 3_600_000  # milliseconds since the last complete sweep


class Alive(Answer, frozen=True, kw_only=True):
    """It does"""


class Ready(Struct, frozen=True, kw_only=True):
    """Whether work can be done, and what needs attention."""

    ok: bool
    role: Annotated[str, one_of(("web", "worker", "all"))]
    missing: list[str]
    notes: list[str]


async def healthz(_request: web.Request) -> web.Response:
    """The process answers."""
    return send(Alive())


async def readyz(request: web.Request) -> web.Response:
    """Work can be done: 503 names what is missing; private repositories are named only to the administrator."""
    context = request.app[CONTEXT]
    missing, notes = [], []
    try:
        async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
            version = await allowlists.in_force(tx)
            newest = await allowlists.newest(tx)
            hidden = await access.hidden_from(request, tx)
            ages = await _ages(tx, context)
            left = await backlog.measure(tx)
            moved, unreached = await pinned.read_problems(tx, context.settings.upstream_repo)
            read_notes = load_each(context.features, "notes")
            is_admin = access.reads_private(request)
            noted = [note for read in read_notes for note in await read(tx, context.settings, is_admin)]
    except StoreUnavailable as error:
        missing.append(f"database: {error}"[:300])
    else:
        missing += _refused_writes(context)
        missing += _of_upstream(context.settings, hidden, moved)
        notes += _of_upstream(context.settings, hidden, unreached)
        source, why = context.settings.allowlist, newest["error"] if newest else "not read yet"
        if _names_private(context.settings, hidden):
            source, why = "the allowlist", ONLY_FOR_ADMIN
        if version is None:
            missing.append(f"allowlist: no valid version of {source}: {why}")
        elif newest and not newest["valid"]:
            notes.append(f"allowlist: the last good version is in force, the newest is not: {why}")
        notes += [
            f"{name}: {sweeps.SWEPT[name]} was last looked at {age // 3_600_000} h ago (App {app}); see its task"
            for name, app, age in ages
            if age > TOO_OLD
        ]
        notes += [*_given_up(left), *noted]
    missing += _refused_keys(context)
    if shortage := disk.find_shortage(context.settings.data_dir):
        (missing if shortage.severe else notes).append(f"disk: {shortage.words}")
    ready = Ready(ok=not missing, role=context.settings.role, missing=missing, notes=notes)
    return send(ready, status=503 if missing else 200)


def _of_upstream(settings: Settings, hidden: Hidden, problems: list[str]) -> list[str]:
    """Return what is wrong with upstream, where that names nothing that is hidden."""
    shown = [ONLY_FOR_ADMIN] if problems and _names_private(settings, hidden) else problems
    return [f"upstream: {problem}" for problem in shown]


def _names_private(settings: Settings, hidden: Hidden) -> bool:
    """Whether the allowlist's place, and what is wrong with it, would name what is hidden."""
    source = on_github(settings.allowlist)
    return any(map(hidden.has, [*settings.upstream_repo, *([source.repo] if source else [])]))


def _given_up(left: Backlog) -> list[str]:
    """Return notes on what waits for the operator."""
    notes = []
    if left.parked:
        notes.append(
            f"deliveries: {left.parked} of the last week could not be handled; see /admin/deliveries?state=parked"
        )
    if left.dead:
        notes.append(f"tasks: {left.dead} given up; see /admin/tasks?state=dead")
    return notes


def _refused_writes(context: Context) -> list[str]:
    """Return whether writes failed lately: the database locked, full, or its file gone."""
    at, why = context.store.failure or (0, "")
    ago = (context.clock.now() - at) // 1000
    return [f"database: a write failed {ago} s ago: {why}"[:300]] if ago < RECENT else []


def _refused_keys(context: Context) -> list[str]:
    """Return what GitHub last said of the Apps' keys, where it does not accept one."""
    apps = {app.app_id: app for app in (context.github, context.backend_github)}
    return [f"App {number}: {app.refusal}"[:300] for number, app in apps.items() if app.refusal]


async def metrics(request: web.Request) -> web.Response:
    """Prometheus text."""
    context = request.app[CONTEXT]
    counts.DATABASE_OK.set(0)
    measured: list[Callable[[], None]] = []
    with contextlib.suppress(StoreUnavailable):
        async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
            newest = await allowlists.newest(tx)
            ages = await _ages(tx, context)
            waiting, last_received = await backlog.measure(tx), await backlog.last_received(tx)
            hidden = await access.hidden_from(request, tx)
            parts = load_each(context.features, "metrics")
            measured = [await measure(tx, context.settings, hidden) for measure in parts]
        for name, app, age in ages:
            counts.SWEEP_AGE.labels(name, app).set(age / 1000)
        counts.ALLOWLIST_OK.set(bool(newest and newest["valid"]))
        arrived, since = await context.intake.arrived()
        oldest = context.clock.now() - since if since else 0
        counts.show_backlog(waiting, last_delivery_at=last_received, arrived=arrived, oldest_arrived=oldest)
        counts.DATABASE_OK.set(not _refused_writes(context))
    _measure_disk(context.settings)
    counts.show_broken({})
    for show in measured:  # last, at once: two requests may not be allowed to see the same
        show()
    return web.Response(
        body=prometheus_client.generate_latest(),
        headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
    )


def _measure_disk(settings: Settings) -> None:
    counts.DISK_FREE.clear()  # an alert on a stale value would be false
    free = disk.free_bytes(settings.data_dir)
    if free is not None:
        counts.DISK_FREE.labels("sqlite" if settings.database_url is None else "files").set(free)


async def _ages(tx: Transaction, context: Context) -> list[tuple[str, int, int]]:
    return await sweeps.ages(tx, [context.github.app_id, context.backend_github.app_id], list(sweeps.SWEPT))


routes = [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
OPERATIONS = (
    op.Operation("GET /healthz", "healthz", "Whether the process answers", Alive, topic=op.RUNNING),
    op.Operation(
        "GET /readyz",
        "readyz",
        "Whether work can be done",
        {
            200: op.Content(Ready, "It can; `notes` say what needs attention"),
            503: op.Content(Ready, "`missing` says why not"),
        },
        topic=op.RUNNING,
        callers=op.READER,
    ),
    op.Operation(
        "GET /metrics",
        "metrics",
        "Prometheus text",
        op.Content(str, "Counters and gauges", media_type="text/plain"),
        topic=op.RUNNING,
    ),
)
