"""Lanes: the exports that a sink wants, each with the shape for its layout. One task sends what is marked of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import Misconfigured
from bot.core.feature import load_each
from bot.sinks.settings import SinksSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.exports import Addition, Export, Shape
    from bot.sinks.settings import SinkSettings


@dataclass(frozen=True, kw_only=True)
class Lane:
    """An export on its way to a sink."""

    sink: SinkSettings
    export: Export
    shape: Shape
    additions: tuple[Addition, ...] = ()

    @property
    def what(self) -> str:
        """The export's name."""
        return self.export.name

    @property
    def task_key(self) -> str:
        """The key of the task that sends it."""
        return f"{self.sink.name}/{self.what}"


def lanes(settings: Settings, features: Features) -> tuple[Lane, ...]:
    """Return the lanes of all sinks; raises Misconfigured where one wants what there is none of."""
    if problems := find_problems(settings, features):
        raise Misconfigured(problems)
    exports = _exports(features)
    added = [one for found in load_each(features, "additions") for one in found]
    return tuple(
        Lane(
            sink=sink,
            export=export,
            shape=export.shapes[sink.layout],
            additions=tuple(one for one in added if one.export == export.name and sink.layout in one.layouts),
        )
        for sink in settings.of(SinksSettings).sinks
        for export in exports
        if _wants(sink, export)
    )


def find_problems(settings: Settings, features: Features) -> list[str]:
    """Return what sinks want that cannot be written to them, a sentence each."""
    sinks = settings.of(SinksSettings).sinks
    exports = _exports(features) if sinks else ()
    return [problem for sink in sinks for problem in _problems_of(sink, exports)]


def _problems_of(sink: SinkSettings, exports: Sequence[Export]) -> list[str]:
    fitting = [export for export in exports if sink.layout in export.shapes]
    known = {name for export in fitting for name in (export.name, export.group) if name}
    elsewhere = {name for export in exports for name in (export.name, export.group) if name}
    problems = []
    for name in sink.what:
        if name not in known:
            why = (
                f"has no shape in layout {sink.layout}"
                if name in elsewhere
                else "is not among what is stored"
            )
            problems.append(f"sink {sink.name}: what: {name!r} {why}; there are {', '.join(sorted(known))}")
    return problems


def _exports(features: Features) -> tuple[Export, ...]:
    return tuple(export for found in load_each(features, "exports") for export in found)


def _wants(sink: SinkSettings, export: Export) -> bool:
    return sink.layout in export.shapes and not {export.name, export.group}.isdisjoint(sink.what)
