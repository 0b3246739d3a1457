"""The composition root: settings -> context -> web server and worker; the only importer of handlers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from aiohttp import web

import handlers
from bot.context import Context
from bot.core import memory, traces
from bot.core.clock import Clock, SystemClock
from bot.core.errors import Misconfigured, RetryLater
from bot.core.feature import Features, load, load_each
from bot.core.resources import Resources
from bot.database import make_store
from bot.db import instance_lock
from bot.db.db_clock import DatabaseClock
from bot.features import FEATURES
from bot.github.client import GitHubApp
from bot.github.rate_budget import SharedBudgets
from bot.ingest import identify
from bot.ingest.intake import Intake
from bot.ingest.pinned import PinnedIds
from bot.listening import accepting, connections, listen
from bot.oot.allowlist import refresh
from bot.oot.allowlist import rows as allowlists
from bot.oot.results import rows
from bot.ops import family_health, health
from bot.processes import member
from bot.processes.supervisor import Supervisor
from bot.web import access, openapi, page_kit, server
from bot.web.handover import DOOR, READY, WORKER, Router
from bot.worker import POLL, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.processes.child import Child
    from bot.web.bodies import BodyRooms
    from bot.web.handover import Channel
    from bot.web.operations import Operation

log = structlog.get_logger("bot.app")

FIRST_READ = 5.0  # seconds for what GitHub is asked before requests are taken; the worker tries again later


def http_session(proxy: str | None) -> aiohttp.ClientSession:
    """Return the session for calls out, through the proxy of the settings; it keeps no cookies.

    trust_env stays off: with it aiohttp would read ~/.netrc too, and refuse calls for what it finds there.
    """
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), proxy=proxy)


@contextlib.asynccontextmanager
async def make_context(
    settings: Settings,
    *,
    clock: Clock | None = None,
    features: Features = FEATURES,
    inline: bool | None = None,
) -> AsyncIterator[Context]:
    """Open the store and the HTTP client, and yield everything a bot consists of.

    `inline`: its event loop waits for SQLite; by default that of a worker does, which answers nobody.
    """
    clock = clock or SystemClock()
    if settings.database_url is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    inline = settings.role == "worker" if inline is None else inline
    store = make_store(settings.database, clock=clock, features=features, inline=inline)
    await store.open()
    async with http_session(settings.proxy) as http:
        settings = await rows.with_known_spelling(store, settings)
        github = _github(settings, http, store, settings.app_id, settings.private_key)
        backend_github = github
        if settings.relay_app_id is not None and settings.relay_private_key is not None:
            backend_github = _github(settings, http, store, settings.relay_app_id, settings.relay_private_key)
        intake = Intake(store)
        resources = Resources()
        try:
            yield Context(
                settings=settings,
                store=store,
                intake=intake,
                clock=clock,
                http=http,
                github=github,
                backend_github=backend_github,
                events=handlers.EVENTS,
                features=features,
                resources=resources,
            )
        finally:
            await resources.close()
            await intake.close()
            await store.close()


def make_worker(context: Context, *, poll: float = POLL) -> Worker:
    """Return the worker with every handler and task kind; it polls every `poll` seconds unless notified."""
    kinds = {kind: load(name) for feature in context.features for kind, name in feature.tasks.items()}
    periodic = timetable(context.settings, context.features)
    return Worker(context, router=handlers.make_router(), kinds=kinds, periodic=periodic, poll=poll)


def timetable(settings: Settings, features: Features) -> dict[str, float]:
    """Return the seconds between two runs of each periodic task kind."""
    kinds: dict[str, float] = {}
    for periodic in load_each(features, "periodic"):
        kinds |= periodic(settings)
    return kinds


def read_program(features: Features) -> None:
    """Import what a process that answers requests needs of the features, without beginning anything."""
    for part in ("routes", "openapi", "before_commit", "metrics"):
        for _ in load_each(features, part):
            pass


def operations(features: Features) -> list[Operation]:
    """Return the operations of the OpenAPI document."""
    return [operation for part in load_each(features, "openapi") for operation in part]


def make_app(
    context: Context,
    *,
    body_seconds: float = 10.0,
    body_rooms: BodyRooms | None = None,
    supervisor: Supervisor | None = None,
) -> web.Application:
    """Return aiohttp's application with the endpoints and pages of this process's role.

    A body that takes longer than `body_seconds` is cut off. With a `supervisor` it speaks for all processes.
    """
    app = server.make_app(context, body_seconds=body_seconds, body_rooms=body_rooms)
    app[access.FIND_PRIVATE] = rows.private
    app.add_routes(health.routes if supervisor is None else family_health.routes(supervisor))
    if context.settings.role != "worker":
        page_kit.setup(app)
        for setup in load_each(context.features, "routes"):
            setup(app)
        openapi.setup(app, partial(operations, context.features))
    return app


async def serve(
    settings: Settings,
    *,
    features: Features = FEATURES,
    ready: Callable[[str], None] | None = None,
    machine: Clock | None = None,
    others: Mapping[str, Child] | None = None,
) -> None:
    """Run the bot until SIGTERM or SIGINT; `ready` gets its address once it answers.

    `machine` is this machine's clock; `others` are processes that were started for it, which it is to supervise.
    Raises Misconfigured when its role does not fit its settings.
    """
    _check_role(settings)
    memory.keep_together()
    with instance_lock.hold(settings.database) as lock, contextlib.closing(listen(settings)) as listening:
        settings = replace(settings, port=listening.getsockname()[1])
        async with _opened(settings, features, machine) as context, contextlib.AsyncExitStack() as running:
            stop = _stop_on_signals()
            router = None if others is None else Router(DOOR)
            supervisor = None if router is None else Supervisor(settings, router, lock)
            factory = await running.enter_async_context(
                connections(make_app(context, supervisor=supervisor), router)
            )
            memory.settle_in()
            await running.enter_async_context(memory.trimming())
            if supervisor is not None and others is not None:
                await running.enter_async_context(
                    supervisor.running(factory, context.store.work_waiting, others)
                )
            elif settings.role != "web":
                await running.enter_async_context(_working(context, stop))
            await running.enter_async_context(accepting(listening, factory))
            log.info(
                "serving",
                url=context.settings.url,
                role=settings.role,
                database=context.store.url.get_backend_name(),
            )
            if ready:
                ready(_address(context.settings))
            await stop.wait()
    log.info("stopped")


async def serve_as(name: str, settings: Settings, channel: Channel) -> None:
    """Run one process of the family until SIGTERM, or until the one that listens is gone."""
    structlog.contextvars.bind_contextvars(process=name)
    memory.keep_together()
    inline = name == WORKER  # whoever waits there waits for the worker's writes anyway
    async with (
        _opened(settings, FEATURES, None, inline=inline) as context,
        contextlib.AsyncExitStack() as running,
    ):
        stop = _stop_on_signals()
        router = Router(name)
        router.channels[DOOR] = channel
        factory = await running.enter_async_context(connections(make_app(context), router))
        memory.settle_in()
        await running.enter_async_context(memory.trimming())
        await running.enter_async_context(member.listening(channel, factory, context.store.work_waiting))
        if name == WORKER:
            await running.enter_async_context(_working(context, stop))
        channel.send(READY)
        await stop.wait()


@contextlib.asynccontextmanager
async def _opened(
    settings: Settings, features: Features, machine: Clock | None, *, inline: bool | None = None
) -> AsyncIterator[Context]:
    """Open everything a process of the bot consists of; it goes by the database's clock."""
    clock = DatabaseClock(machine or SystemClock())
    async with (
        traces.exporting(),
        make_context(settings, clock=clock, features=features, inline=inline) as context,
        clock.synchronized(context.store),
    ):
        yield context


def _address(settings: Settings) -> str:
    """Return the address to open, of which a worker has no pages, and where it listens behind any proxy."""
    listening = f"{settings.host}:{settings.port}"
    opened = f"http://{listening}/readyz" if settings.role == "worker" else f"{settings.url}/oot"
    return f"{opened}, listening on {listening}"


def _check_role(settings: Settings) -> None:
    problems = []
    if settings.role != "all" and settings.database.startswith("sqlite"):
        problems.append(
            f"OOTBOT_ROLE={settings.role} needs OOTBOT_DATABASE_URL, a PostgreSQL that web and worker share: "
            "SQLite works with one process, OOTBOT_ROLE=all"
        )
    if settings.role == "worker" and settings.public_url is None:
        problems.append(
            "OOTBOT_PUBLIC_URL is missing: a worker writes links to pages that other processes answer"
        )
    if problems:
        raise Misconfigured(problems)


@contextlib.asynccontextmanager
async def _working(context: Context, stop: asyncio.Event) -> AsyncIterator[None]:
    """Run the worker, after reading the allowlist; once `stop` is set it takes no new work."""
    await _unless_set(stop, asyncio.gather(_first_allowlist(context), _first_visibility(context)))
    worker = make_worker(context)
    working = asyncio.create_task(worker.run())
    working.add_done_callback(lambda _: stop.set())  # the process ends with its worker
    stopping = asyncio.create_task(_stop_at(stop, worker))
    try:
        yield
    finally:
        stop.set()
        await stopping
        await working


async def _unless_set(stop: asyncio.Event, work: asyncio.Future[Any]) -> None:
    """Wait for some work, but not once `stop` is set: a database that says nothing may keep it for minutes."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not work.done():
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _stop_at(stop: asyncio.Event, worker: Worker) -> None:
    """Stop the worker as soon as `stop` is set: its tasks end while requests in flight do."""
    await stop.wait()
    log.info("stopping: no new work")
    worker.stop()


async def _first_allowlist(context: Context) -> None:
    """Read the allowlist before the first event comes, if that is quick.

    Where other processes may run, the one in force stays until the next read, within half a minute.
    """
    async with context.store.read() as tx:
        if not tx.sqlite and await allowlists.in_force(tx) is not None:
            return
    with contextlib.suppress(RetryLater, TimeoutError):
        async with asyncio.timeout(FIRST_READ):
            await refresh.refresh(context)


async def _first_visibility(context: Context) -> None:
    """Ask GitHub which of the repositories in our settings are private, if it answers soon; else a task asks again."""
    with contextlib.suppress(RetryLater, TimeoutError):
        async with asyncio.timeout(FIRST_READ):
            await identify.ask_at_start(context)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop


def _github(
    settings: Settings, http: aiohttp.ClientSession, store: Store, app_id: int, private_key: str
) -> GitHubApp:
    return GitHubApp(
        app_id=app_id,
        private_key=private_key,
        api_url=settings.github_api_url,
        http=http,
        clock=store.clock,
        writes_per_min=settings.writes_per_min,
        budgets=SharedBudgets(store, app_id),
        pinned=PinnedIds(store).of,
    )
