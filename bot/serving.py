"""Serving: what one process of the bot runs, from its start until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from bot.app import make_app, make_context, make_worker
from bot.core import memory, traces
from bot.core.clock import Clock, SystemClock
from bot.core.errors import Misconfigured, RetryLater
from bot.db import instance_lock
from bot.db.db_clock import DatabaseClock
from bot.features import FEATURES
from bot.ingest import identify
from bot.listening import accepting, connections, listen
from bot.oot.allowlist import refresh
from bot.oot.allowlist import rows as allowlists
from bot.processes import member
from bot.processes.supervisor import Supervisor
from bot.web.handover import LISTENER, READY, WORKER, Router

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.processes.child import Child
    from bot.web.handover import Channel
    from bot.worker import Worker

log = structlog.get_logger("bot.serving")

FIRST_READ = 5.0  # seconds for what GitHub is asked before requests are taken; the worker tries again later


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
            router = None if others is None else Router(LISTENER)
            supervisor = None if router is None else Supervisor(settings, router, lock)
            factory = await running.enter_async_context(
                connections(make_app(context, supervisor=supervisor), router)
            )
            memory.freeze_loaded_objects()
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
    """Run one of several processes until SIGTERM, or until the one that listens is gone."""
    structlog.contextvars.bind_contextvars(process=name)
    memory.keep_together()
    inline = name == WORKER  # what waits there waits for the worker's writes anyway
    async with (
        _opened(settings, FEATURES, None, inline=inline) as context,
        contextlib.AsyncExitStack() as running,
    ):
        stop = _stop_on_signals()
        router = Router(name)
        router.channels[LISTENER] = channel
        factory = await running.enter_async_context(connections(make_app(context), router))
        memory.freeze_loaded_objects()
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
            await identify.identify_at_start(context)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop
