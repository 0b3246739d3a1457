"""Which exports of a sink a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bot.console.common import features

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.settings import Settings
    from bot.sinks.lanes import Lane


def choose_lanes(settings: Settings, name: str, what: str | None) -> list[Lane]:
    """Return the exports of a sink that are meant; exits with 2 where there are none."""
    from bot.sinks.lanes import lanes  # noqa: PLC0415 - the other commands start without SQLAlchemy

    found = lanes(settings, features())
    mine = [lane for lane in found if lane.sink.name == name]
    if not mine:
        raise click.UsageError(f"no sink is called {name!r}{_known({lane.sink.name for lane in found})}")
    chosen = [lane for lane in mine if what in {None, lane.what, lane.export.group}]
    if not chosen:
        raise click.UsageError(f"sink {name} has no {what!r}{_known({lane.what for lane in mine})}")
    return chosen


def _known(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    return f"; there are {listed}" if listed else ": docs/sinks.md says how to set one up"
