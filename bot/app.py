"""How are the parts put together? Settings -> context -> web server and worker; the only importer of handlers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import structlog
from aiohttp import web

import handlers
from bot import memory, tasks, traces, upstream
from bot.clock import Clock, SystemClock
from bot.context import Context
from bot.errors import Misconfigured, RetryLater
from bot.github import GitHubApp
from bot.oidc import Verifier
from bot.store import Store, allowlists, alone
from bot.store.budgets import SharedBooks
from bot.store.shared_time import SharedClock
from bot.web.limits import Connection, Gate, Limits, most_connections
from bot.web.routes import make_app
from bot.worker import POLL, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bot.settings import Settings

log = structlog.get_logger("bot.app")

FIRST_LOOK = 5.0  # seconds for reading the allowlist before the doors open; the worker tries again after that
SHUTDOWN = 2.0  # seconds requests in flight get to end
BACKLOG = 1024  # connections the system may hold for us while we are busy


def calling(proxy: str | None) -> aiohttp.ClientSession:
    """Return what calls out, through a proxy where there is one; it keeps no cookies.

    The environment is not asked for one: aiohttp would read ~/.netrc too, and refuse our calls for what stands there.
    """
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), proxy=proxy)


@contextlib.asynccontextmanager
async def make_context(settings: Settings, *, clock: Clock | None = None) -> AsyncIterator[Context]:
    """Open the store and the HTTP client and hand out everything a bot consists of; closed at the end."""
    clock = clock or SystemClock()
    if settings.database_url is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = Store(settings.database, clock=clock)
    await store.open()
    async with calling(settings.proxy) as http:
        settings = await upstream.settle(store, settings)
        github = _github(settings, http, store, settings.app_id, settings.private_key)
        relay = github
        if settings.relay_app_id is not None and settings.relay_private_key is not None:
            relay = _github(settings, http, store, settings.relay_app_id, settings.relay_private_key)
        verifier = Verifier(settings.oidc_issuers, audiences=settings.oidc_audience, http=http, clock=clock)
        try:
            yield Context(
                settings=settings,
                store=store,
                clock=clock,
                github=github,
                relay=relay,
                verifier=verifier,
                events=handlers.EVENTS,
            )
        finally:
            await store.close()


def make_worker(context: Context, *, poll: float = POLL) -> Worker:
    """Return the worker with every handler and task kind; it looks for work every `poll` seconds unless rung."""
    pulling = {"pull": float(context.settings.pull_interval)} if context.settings.pulls else {}
    return Worker(
        context,
        router=handlers.make_router(),
        kinds=tasks.KINDS,
        periodic=tasks.PERIODIC | pulling,
        poll=poll,
    )


async def serve(
    settings: Settings, *, ready: Callable[[str], None] | None = None, machine: Clock | None = None
) -> None:
    """Run the bot until SIGTERM or SIGINT; `ready` is told where to look at it once it answers.

    `machine` is this machine's clock. Raises Misconfigured when this process cannot do its part beside the others.
    """
    _check_role(settings)
    memory.keep_together()
    with alone.hold(settings.database), contextlib.closing(_listen(settings)) as listening:
        port = listening.getsockname()[1]
        clock = SharedClock(machine or SystemClock())
        async with (
            traces.exporting(),
            make_context(replace(settings, port=port), clock=clock) as context,
            clock.following(context.store),
        ):
            stop = _stop_on_signals()
            limits = Limits(connections=most_connections())
            served = make_app(context)
            memory.settle_in()
            async with memory.trimming(), _working(context, stop), answering(served, listening, limits):
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


def _address(settings: Settings) -> str:
    """Return where to look at this process: a worker has no pages."""
    own = f"http://{settings.host}:{settings.port}"
    return f"{own}/readyz" if settings.role == "worker" else f"{settings.url}/oot"


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
    """Run the worker beside the rest, after a first look at the allowlist; once `stop` is set it takes no new work."""
    if context.settings.role == "web":
        yield
        return
    await _first_allowlist(context)
    worker = make_worker(context)
    working = asyncio.create_task(worker.run())
    working.add_done_callback(lambda _: stop.set())  # a worker that died takes the process with it
    stopping = asyncio.create_task(_stop_at(stop, worker))
    try:
        yield
    finally:
        stop.set()
        await stopping
        await working


async def _stop_at(stop: asyncio.Event, worker: Worker) -> None:
    """Wait for `stop`, then have the worker take no new work: tasks end while requests in flight do."""
    await stop.wait()
    log.info("stopping: no new work")
    worker.stop()


async def _first_allowlist(context: Context) -> None:
    """Have an allowlist in force before the first event comes, if that can be had quickly.

    Where other processes may be at work, the one that is in force stays until its next look, half a minute at most.
    """
    async with context.store.read() as tx:
        if not tx.sqlite and await allowlists.in_force(tx) is not None:
            return
    with contextlib.suppress(RetryLater, TimeoutError):
        async with asyncio.timeout(FIRST_LOOK):
            await tasks.allowlist.refresh(context)


@contextlib.asynccontextmanager
async def answering(app: web.Application, listening: socket.socket, limits: Limits) -> AsyncIterator[None]:
    """Serve the application on a socket; in the end requests in flight get a moment."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN)
    await runner.setup()
    assert runner.server
    loop = asyncio.get_running_loop()
    accepting = await loop.create_server(Gate(runner.server, limits), sock=listening, backlog=BACKLOG)
    try:
        yield
    finally:
        accepting.close()
        await _served(runner.server)  # aiohttp reads nothing more of a request once its clean-up has begun
        await runner.cleanup()


async def _served(server: web.Server) -> None:
    """Return when nobody is being served any more, or has been for too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN):
            while any(isinstance(one, Connection) and not one.idle_for() for one in server.connections):  # noqa: ASYNC110 - a connection has no event for that
                await asyncio.sleep(0.02)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        problem = (
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror}): end what listens there, "
            "or set OOTBOT_HOST and OOTBOT_PORT"
        )
        raise Misconfigured([problem]) from error
    return listening


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
        books=SharedBooks(store, app_id),
    )
