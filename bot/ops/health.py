"""/healthz, /readyz and /metrics: liveness, readiness and Prometheus metrics.

Where there are several processes, the one that listens answers for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated

import msgspec
import prometheus_client
from aiohttp import web
from msgspec import Struct
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bot.core import files, metrics
from bot.core.errors import StoreUnavailable
from bot.core.feature import load_each
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.ingest import inbox, redeliver, repositories
from bot.oot.allowlist import versions
from bot.oot.allowlist.allowlist import parse_github_source
from bot.processes import PROCESS_NAMES
from bot.web import access, openapi
from bot.web.access import CONTEXT
from bot.web.answers import Answer, one_of, send_json

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.inbox import Backlog
    from bot.processes import Supervisor
    from bot.web.access import Hidden

RECENT = 15  # seconds
ONLY_FOR_ADMIN = "see /admin or `ootbot doctor`, or ask with the ADMIN_TOKEN"
TOO_OLD = 24 * 3_600_000  # milliseconds since the last complete sweep
PASSED_ON = ("Authorization", "Cookie")  # headers that say who asks
SUMMED = frozenset({"process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"})
ADDITIVE = frozenset({"counter", "histogram", "summary"})
SampleKey = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and labels
SampleValues = dict[SampleKey, float]


class Alive(Answer, frozen=True, kw_only=True):
    """It does"""


class Ready(Struct, frozen=True, kw_only=True):
    """Whether work can be done, and what needs attention."""

    ok: bool
    role: Annotated[str, one_of(("web", "worker", "all"))]
    missing: list[str]
    notes: list[str]


OPERATIONS = (
    openapi.Operation("GET /healthz", "healthz", "Whether the process answers", Alive, topic=openapi.RUNNING),
    openapi.Operation(
        "GET /readyz",
        "readyz",
        "Whether work can be done",
        {
            200: openapi.Content(Ready, "It can; `notes` say what needs attention"),
            503: openapi.Content(Ready, "`missing` says why not"),
        },
        topic=openapi.RUNNING,
        callers=openapi.READER,
    ),
    openapi.Operation(
        "GET /metrics",
        "metrics",
        "Prometheus text",
        openapi.Content(str, "Counters and gauges", media_type="text/plain"),
        topic=openapi.RUNNING,
    ),
)


async def send_liveness(_request: web.Request) -> web.Response:
    """The process answers."""
    return send_json(Alive())


async def send_readiness(request: web.Request) -> web.Response:
    """Work can be done: 503 names what is missing; private repositories are named only to the administrator."""
    context = request.app[CONTEXT]
    missing, notes = [], []
    try:
        async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
            version = await versions.read_in_force(tx)
            newest = await versions.read_newest(tx)
            hidden = await access.hidden_from(request, tx)
            ages = await _ages(tx, context)
            left = await inbox.measure_backlog(tx)
            moved, unreached = await repositories.read_problems(tx, context.settings.upstream_repo)
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
            f"{name}: {redeliver.SWEPT[name]} was last looked at {age // 3_600_000} h ago (App {app}); see its task"
            for name, app, age in ages
            if age > TOO_OLD
        ]
        notes += [*_given_up(left), *noted]
    missing += _refused_keys(context)
    if shortage := files.find_shortage(context.settings.data_dir):
        (missing if shortage.severe else notes).append(f"disk: {shortage.words}")
    ready = Ready(ok=not missing, role=context.settings.role, missing=missing, notes=notes)
    return send_json(ready, status=503 if missing else 200)


async def send_metrics(request: web.Request) -> web.Response:
    """Prometheus text."""
    context = request.app[CONTEXT]
    metrics.DATABASE_OK.set(0)
    measured: list[Callable[[], None]] = []
    with contextlib.suppress(StoreUnavailable):
        async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
            newest = await versions.read_newest(tx)
            ages = await _ages(tx, context)
            waiting, last_received = await inbox.measure_backlog(tx), await inbox.read_last_received(tx)
            hidden = await access.hidden_from(request, tx)
            parts = load_each(context.features, "metrics")
            measured = [await measure(tx, context.settings, hidden) for measure in parts]
        for name, app, age in ages:
            metrics.SWEEP_AGE.labels(name, app).set(age / 1000)
        metrics.ALLOWLIST_OK.set(bool(newest and newest["valid"]))
        arrived, since = await context.intake.arrived()
        oldest = context.clock.now() - since if since else 0
        metrics.show_backlog(waiting, last_delivery_at=last_received, arrived=arrived, oldest_arrived=oldest)
        metrics.DATABASE_OK.set(not _refused_writes(context))
    _measure_disk(context.settings)
    metrics.show_broken({})
    for show in measured:  # last, at once: two requests may not be allowed to see the same
        show()
    return web.Response(
        body=prometheus_client.generate_latest(),
        headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST},
    )


routes = [
    web.get("/healthz", send_liveness),
    web.get("/readyz", send_readiness),
    web.get("/metrics", send_metrics),
]


def routes_of_processes(supervisor: Supervisor) -> list[web.RouteDef]:
    """Return the routes of the process that listens."""
    totals = Totals()

    async def of_others(request: web.Request) -> dict[str, bytes]:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        bodies = await asyncio.gather(
            *(supervisor.ask(name, request.path, headers) for name in PROCESS_NAMES)
        )
        return {name: body for name, body in zip(PROCESS_NAMES, bodies, strict=True) if body}

    async def merged_readiness(request: web.Request) -> web.Response:
        own, others = await asyncio.gather(send_readiness(request), of_others(request))
        own_answer = _decode_readiness(own)
        missing = dict.fromkeys([*own_answer.missing, *supervisor.problems()])
        down = supervisor.down
        missing |= dict.fromkeys(
            f"{name}: does not answer" for name in PROCESS_NAMES if name not in others and name not in down
        )
        for body in others.values():
            missing |= dict.fromkeys(msgspec.json.decode(body, type=Ready).missing)
        ready = Ready(ok=not missing, role=own_answer.role, missing=list(missing), notes=own_answer.notes)
        return send_json(ready, status=503 if missing else 200)

    async def merged_metrics(request: web.Request) -> web.Response:
        own, others = await asyncio.gather(send_metrics(request), of_others(request))
        assert isinstance(own.body, bytes)
        return web.Response(body=totals.add_up(own.body, others, supervisor.starts), headers=own.headers)

    return [
        web.get("/healthz", send_liveness),
        web.get("/readyz", merged_readiness),
        web.get("/metrics", merged_metrics),
    ]


class Totals:
    """Merges the metrics of all processes: counts are added, of other values the greatest is shown.

    Counts from before a process's restart stay in the sum: a count that falls means a restart.
    """

    def __init__(self) -> None:
        self._last: dict[
            str, tuple[int, SampleValues]
        ] = {}  # of each process: its start, and its counts then
        self._ended: SampleValues = {}  # of processes that have ended

    def add_up(self, own: bytes, others: dict[str, bytes], starts: Counter[str]) -> bytes:
        """Return the metrics of all processes; `starts`: how often each was started."""
        families: dict[str, Metric] = {}
        values: dict[str, SampleValues] = {}
        _merge_samples(families, values, own)
        for name, text in others.items():
            counts = _merge_samples(families, values, text)
            start, before = self._last.get(name, (starts[name], {}))
            if start != starts[name]:
                for key, value in before.items():
                    self._ended[key] = self._ended.get(key, 0) + value
            self._last[name] = starts[name], counts
        absent = [counts for name, (_, counts) in self._last.items() if name not in others]
        for gone in (self._ended, *absent):
            for key, value in gone.items():
                for counted in values.values():
                    if key in counted:
                        counted[key] += value
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(families.values(), values))
        return prometheus_client.generate_latest(registry)


def _of_upstream(settings: Settings, hidden: Hidden, problems: list[str]) -> list[str]:
    """Return upstream's problems, as far as they name nothing hidden."""
    shown = [ONLY_FOR_ADMIN] if problems and _names_private(settings, hidden) else problems
    return [f"upstream: {problem}" for problem in shown]


def _names_private(settings: Settings, hidden: Hidden) -> bool:
    """Whether the allowlist's location and problems would name anything hidden."""
    source = parse_github_source(settings.allowlist)
    return any(map(hidden.has, [*settings.upstream_repo, *([source.repo] if source else [])]))


def _given_up(left: Backlog) -> list[str]:
    """Return notes on work that waits for the operator."""
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
    """Return GitHub's last words about the Apps' keys that it does not accept."""
    apps = {app.app_id: app for app in (context.github, context.backend_github)}
    return [f"App {number}: {app.refusal}"[:300] for number, app in apps.items() if app.refusal]


def _measure_disk(settings: Settings) -> None:
    metrics.DISK_FREE.clear()  # an alert on a stale value would be false
    free = files.free_bytes(settings.data_dir)
    if free is not None:
        metrics.DISK_FREE.labels("sqlite" if settings.database_url is None else "files").set(free)


async def _ages(tx: Transaction, context: Context) -> list[tuple[str, int, int]]:
    return await redeliver.read_sweep_ages(
        tx, [context.github.app_id, context.backend_github.app_id], list(redeliver.SWEPT)
    )


def _decode_readiness(answer: web.Response) -> Ready:
    assert isinstance(answer.body, bytes)
    return msgspec.json.decode(answer.body, type=Ready)


class _Collected(prometheus_client.registry.Collector):
    """Families of metrics with given values."""

    def __init__(self, families: Iterable[Metric], values: dict[str, SampleValues]) -> None:
        self._families = families
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            made = Metric(family.name, family.documentation, family.type)
            made.samples = [
                Sample(name, dict(labels), value)
                for (name, labels), value in self._values[family.name].items()
            ]
            yield made


def _merge_samples(families: dict[str, Metric], values: dict[str, SampleValues], text: bytes) -> SampleValues:
    """Add one process's metrics; returns what it has counted."""
    counts: SampleValues = {}
    for family in text_string_to_metric_families(text.decode()):
        families.setdefault(family.name, family)
        present = values.setdefault(family.name, {})
        additive = family.type in ADDITIVE
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            if additive:
                counts[key] = sample.value
            if additive or family.name in SUMMED:
                present[key] = present.get(key, 0) + sample.value
            else:
                present[key] = max(present.get(key, sample.value), sample.value)
    return counts
