"""/healthz, /readyz and /metrics of several processes: the one that listens answers for all of them.

Metrics are added up from each process's own answer, and not by `prometheus_client.multiprocess`: that cannot clear a
gauge's labels, so a mended branch would stay broken; it leaves out the processes' memory and files; it is chosen by an
environment variable before the settings are read; and each count takes nine times as long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import prometheus_client
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bot.ops import health
from bot.ops.health import Ready
from bot.processes.child import NAMES
from bot.web.answers import send

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator

    from bot.processes.supervisor import Supervisor

PASSED_ON = ("Authorization", "Cookie")  # headers that say who asks
SUMMED = frozenset({"process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"})
ADDITIVE = frozenset({"counter", "histogram", "summary"})
Key = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and labels
Counts = dict[Key, float]


def routes(supervisor: Supervisor) -> list[web.RouteDef]:
    """Return the routes of the process that listens."""
    totals = Totals()

    async def of_others(request: web.Request) -> dict[str, bytes]:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        bodies = await asyncio.gather(*(supervisor.ask(name, request.path, headers) for name in NAMES))
        return {name: body for name, body in zip(NAMES, bodies, strict=True) if body}

    async def readyz(request: web.Request) -> web.Response:
        own, others = await asyncio.gather(health.readyz(request), of_others(request))
        found = _ready(own)
        missing = dict.fromkeys([*found.missing, *supervisor.problems()])
        down = supervisor.down
        missing |= dict.fromkeys(
            f"{name}: does not answer" for name in NAMES if name not in others and name not in down
        )
        for body in others.values():
            missing |= dict.fromkeys(msgspec.json.decode(body, type=Ready).missing)
        ready = Ready(ok=not missing, role=found.role, missing=list(missing), notes=found.notes)
        return send(ready, status=503 if missing else 200)

    async def metrics(request: web.Request) -> web.Response:
        own, others = await asyncio.gather(health.metrics(request), of_others(request))
        assert isinstance(own.body, bytes)
        return web.Response(body=totals.add_up(own.body, others, supervisor.starts), headers=own.headers)

    return [
        web.get("/healthz", health.healthz),
        web.get("/readyz", readyz),
        web.get("/metrics", metrics),
    ]


def _ready(answer: web.Response) -> Ready:
    assert isinstance(answer.body, bytes)
    return msgspec.json.decode(answer.body, type=Ready)


class Totals:
    """Metrics of all processes as those of one: counts are added, of other values the greatest is shown.

    What a process had counted before it was started again stays in the sum: one that falls counts as begun again.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Counts]] = {}  # of each process: its start, and its counts then
        self._ended: Counts = {}  # of processes that have ended

    def add_up(self, own: bytes, others: dict[str, bytes], starts: Counter[str]) -> bytes:
        """Return the metrics of all processes; `starts`: how often each was started."""
        families: dict[str, Metric] = {}
        values: dict[str, Counts] = {}
        _merge(families, values, own)
        for name, text in others.items():
            counts = _merge(families, values, text)
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


class _Collected(prometheus_client.registry.Collector):
    """Families of metrics with the values given."""

    def __init__(self, families: Iterable[Metric], values: dict[str, Counts]) -> None:
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


def _merge(families: dict[str, Metric], values: dict[str, Counts], text: bytes) -> Counts:
    """Add one process's metrics; returns what it has counted."""
    counts: Counts = {}
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
