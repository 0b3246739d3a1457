"""The composition root: settings -> context -> web application and worker; the only importer of handlers."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

import handlers
from bot.context import Context, Resources
from bot.core.clock import Clock, SystemClock
from bot.core.feature import Features, folder, load, load_each, references_of
from bot.core.files import PACKAGE
from bot.database import make_store
from bot.features import FEATURES
from bot.github.client import GitHubApp, load_key
from bot.github.rate_limiter import SharedBudgets
from bot.ingest.intake import Intake
from bot.ingest.repositories import CachedRepositoryIds
from bot.oot.results import visibility
from bot.ops import health
from bot.web import access, html, openapi_document, server, view
from bot.worker import POLL, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping

    import jinja2

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.github.client import KeyLoader
    from bot.processes import Supervisor
    from bot.web.bodies import BodyCapacities
    from bot.web.openapi import Operation


def http_session(proxy: str | None) -> aiohttp.ClientSession:
    """Return the session for outgoing calls, through the proxy of the settings; it keeps no cookies.

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
    load_key: KeyLoader = load_key,
    compiled: MutableMapping[Any, Any] | None = None,
) -> AsyncIterator[Context]:
    """Open the store and the HTTP client, and yield everything a bot consists of.

    `inline`: its event loop waits for SQLite; by default that of a worker does, which answers no requests.
    `load_key` reads and checks the Apps' keys. `compiled`: where SQLAlchemy keeps compiled statements; by default
    each engine has its own.
    """
    clock = clock or SystemClock()
    if settings.database_url is None:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    inline = settings.role == "worker" if inline is None else inline
    store = make_store(
        settings.database, clock=clock, features=features, settings=settings, inline=inline, compiled=compiled
    )
    await store.open()
    async with http_session(settings.proxy) as http:
        settings = await visibility.with_known_spelling(store, settings)
        github = _github(settings, http, store, load_key, (settings.app_id, settings.private_key))
        backend_github = github
        if settings.relay_app_id is not None and settings.relay_private_key is not None:
            backend_github = _github(
                settings, http, store, load_key, (settings.relay_app_id, settings.relay_private_key)
            )
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
                events=handlers.EVENTS.union(*(feature.deliveries for feature in features)),
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
    router = handlers.make_router()
    for feature in context.features:
        for event, name in feature.deliveries.items():
            router.add(load(name), event)
    return Worker(context, router=router, kinds=kinds, periodic=periodic, poll=poll)


def timetable(settings: Settings, features: Features) -> dict[str, float]:
    """Return the seconds between two runs of each periodic task kind."""
    kinds: dict[str, float] = {}
    for periodic in load_each(features, "periodic"):
        kinds |= periodic(settings)
    return kinds


def read_program(features: Features) -> None:
    """Import the parts of the features that a process needs to answer requests, and begin nothing."""
    for part in ("views", "routes", "senders", "before_commit", "observer", "metrics"):
        for _ in load_each(features, part):
            pass


def operations(features: Features) -> list[Operation]:
    """Return the operations of the OpenAPI document."""
    described: list[Operation] = []
    for views in load_each(features, "views"):
        described += view.operations(views)
    return [*described, *health.OPERATIONS]


def make_app(
    context: Context,
    *,
    body_seconds: float = 10.0,
    body_capacities: BodyCapacities | None = None,
    supervisor: Supervisor | None = None,
    compiled: jinja2.BytecodeCache | None = None,
) -> web.Application:
    """Return aiohttp's application with the endpoints and pages of this process's role.

    A body that takes longer than `body_seconds` is cut off. With a `supervisor` it speaks for all processes.
    `compiled` keeps templates for other applications of this process.
    """
    app = server.make_app(context, body_seconds=body_seconds, body_capacities=body_capacities)
    app[access.FIND_PRIVATE] = visibility.private_repositories
    app.add_routes(health.routes if supervisor is None else health.routes_of_processes(supervisor))
    if context.settings.role != "worker":
        server.set_up_pages(app, compiled)
        for templates in sorted((*PACKAGE.glob("*/templates"), *PACKAGE.glob("pages/*/templates"))):
            html.add_templates(app, templates)
        for feature in context.features:
            for reference in references_of(feature, "views"):
                html.add_templates(app, folder(reference) / "templates")
                app.add_routes(view.routes(load(reference)))
            for add in load_each((feature,), "routes"):
                add(app)
        openapi_document.setup(app, partial(operations, context.features))
    return app


def _github(
    settings: Settings, http: aiohttp.ClientSession, store: Store, load_key: KeyLoader, app: tuple[int, str]
) -> GitHubApp:
    app_id, private_key = app
    return GitHubApp(
        app_id=app_id,
        private_key=private_key,
        api_url=settings.github_api_url,
        http=http,
        clock=store.clock,
        writes_per_min=settings.writes_per_min,
        budgets=SharedBudgets(store, app_id),
        repository_ids=CachedRepositoryIds(store).of,
        load_key=load_key,
    )
