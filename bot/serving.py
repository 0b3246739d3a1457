"""Serving: what one process of the bot runs, from its start until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from bot import processes
from bot.app import make_app, make_context, make_worker
from bot.core import traces
from bot.core.clock import Clock, SystemClock
from bot.core.errors import Misconfigured, RetryLater, in_words
from bot.db import installation
from bot.db.installation import DatabaseClock
from bot.features import FEATURES
from bot.ingest import reconcile
from bot.ingest.webhooks import FastPath
from bot.oot.allowlist import versions
from bot.processes import Supervisor
from bot.web.access import CONTEXT
from bot.web.connections import Connection, ConnectionFactory, ConnectionLimits, most_connections
from bot.web.handover import LISTENER, READY, WORKER, Router

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.processes import Child
    from bot.web.handover import Channel
    from bot.worker import Worker

log = structlog.get_logger("bot.serving")

FIRST_READ = 5.0  # seconds for what GitHub is asked before requests are taken; the worker tries again later
SHUTDOWN = 2.0  # seconds for requests in flight
BACKLOG = 1024  # connections the system holds while the bot is busy
LARGE_ALLOCATION = 256 * 1024  # bytes
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h
MEMORY_ARENAS = 2  # one thread runs at a time: more would only increase fragmentation
TRIM_EVERY = 60.0  # seconds


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
    limit_memory_arenas()
    with (
        installation.hold_instance_lock(settings.database) as lock,
        contextlib.closing(listen_on_port(settings)) as listening,
    ):
        settings = replace(settings, port=listening.getsockname()[1])
        async with _opened(settings, features, machine) as context, contextlib.AsyncExitStack() as running:
            stop = _stop_on_signals()
            router = None if others is None else Router(LISTENER)
            supervisor = None if router is None else Supervisor(settings, router, lock)
            factory = await running.enter_async_context(
                connection_factory(make_app(context, supervisor=supervisor), router)
            )
            freeze_loaded_objects()
            await running.enter_async_context(trimming_memory())
            if supervisor is not None and others is not None:
                await running.enter_async_context(
                    supervisor.running(factory, context.store.work_waiting, others)
                )
            elif settings.role != "web":
                await running.enter_async_context(_working(context, stop))
            await running.enter_async_context(accepting_connections(listening, factory))
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
    """Run one of several processes until SIGTERM, or until the one that listens is gone."""
    structlog.contextvars.bind_contextvars(process=name)
    limit_memory_arenas()
    inline = name == WORKER  # what waits there waits for the worker's writes anyway
    async with (
        _opened(settings, FEATURES, None, inline=inline) as context,
        contextlib.AsyncExitStack() as running,
    ):
        stop = _stop_on_signals()
        router = Router(name)
        router.channels[LISTENER] = channel
        factory = await running.enter_async_context(connection_factory(make_app(context), router))
        freeze_loaded_objects()
        await running.enter_async_context(trimming_memory())
        await running.enter_async_context(
            processes.taking_connections(channel, factory, context.store.work_waiting)
        )
        if name == WORKER:
            await running.enter_async_context(_working(context, stop))
        channel.send(READY)
        await stop.wait()


@contextlib.asynccontextmanager
async def answering_requests(
    app: web.Application, listening: socket.socket, limits: ConnectionLimits
) -> AsyncIterator[None]:
    """Serve the application on a socket; at the end requests in flight get a moment to finish."""
    async with connection_factory(app, None, limits) as factory, accepting_connections(listening, factory):
        yield


@contextlib.asynccontextmanager
async def connection_factory(
    app: web.Application, router: Router | None, limits: ConnectionLimits | None = None
) -> AsyncIterator[ConnectionFactory]:
    """Yield the factory of an application's connections; at the end requests in flight get a moment to finish."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN)
    await runner.setup()
    assert runner.server
    try:
        yield ConnectionFactory(
            runner.server,
            limits or ConnectionLimits(connections=most_connections()),
            router,
            None if app[CONTEXT].settings.role == "worker" else FastPath(app),
        )
    finally:
        await _until_idle(runner.server)  # during its clean-up aiohttp reads no more of a request
        await runner.cleanup()


@contextlib.asynccontextmanager
async def accepting_connections(listening: socket.socket, factory: ConnectionFactory) -> AsyncIterator[None]:
    """Accept connections on a socket during the block."""
    server = await asyncio.get_running_loop().create_server(factory, sock=listening, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()


def listen_on_port(settings: Settings) -> socket.socket:
    """Return a socket that listens where the settings say; raises Misconfigured where none can."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        problem = (
            f"cannot listen on {settings.listening}: {in_words(error)}; end what listens there, "
            "or choose with --host and --port (OOTBOT_HOST, OOTBOT_PORT)"
        )
        raise Misconfigured([problem]) from error
    return listening


def limit_memory_arenas() -> None:
    """Have large blocks returned to the system once free, and limit fragmentation.

    Otherwise twenty bodies of 25 MB leave the process 300 MB larger.
    """
    if adjust := _malloc_function("mallopt"):
        adjust(M_MMAP_THRESHOLD, LARGE_ALLOCATION)
        adjust(M_ARENA_MAX, MEMORY_ARENAS)


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection: it stays, and scanning it takes 60 ms."""
    gc.collect()
    gc.freeze()
    gc.enable()


@contextlib.asynccontextmanager
async def trimming_memory() -> AsyncIterator[None]:
    """Return free pages to the system every minute: by itself only the end of the heap is."""
    going = asyncio.create_task(_trim_for_ever())
    try:
        yield
    finally:
        going.cancel()


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
    """Return the address to open, and where the process listens behind any proxy; a worker has no pages."""
    listening = settings.listening
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
    """Wait for some work until `stop` is set: a silent database might hold it up for minutes."""
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

    Where other processes may run, the version in force stays until the next read, within half a minute.
    """
    async with context.store.read() as tx:
        if not tx.sqlite and await versions.read_in_force(tx) is not None:
            return
    with contextlib.suppress(RetryLater, TimeoutError):
        async with asyncio.timeout(FIRST_READ):
            await versions.refresh(context)


async def _first_visibility(context: Context) -> None:
    """Ask GitHub which repositories of our settings are private; if it does not answer soon, a task asks again."""
    with contextlib.suppress(RetryLater, TimeoutError):
        async with asyncio.timeout(FIRST_READ):
            await reconcile.identify_at_start(context)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop


async def _until_idle(server: web.Server) -> None:
    """Wait until no request is being served, or for too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN):
            while any(  # noqa: ASYNC110 - a connection has no event for that
                isinstance(connection, Connection) and not connection.idle_for()
                for connection in server.connections
            ):
                await asyncio.sleep(0.02)


async def _trim_for_ever() -> None:
    while trim := _malloc_function("malloc_trim"):
        await asyncio.sleep(TRIM_EVERY)
        await asyncio.to_thread(trim, 0)


def _malloc_function(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
