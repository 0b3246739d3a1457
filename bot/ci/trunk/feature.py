"""What the grid of a repository's own CI adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"branch": 600.0}


FEATURE = Feature(
    name="trunk",
    tables="bot.ci.trunk.tables",
    tasks={"branch": "bot.ci.trunk.list_branch:run", "trunk_changes": "bot.ci.trunk.record_changes:run"},
    background=frozenset({"trunk_changes"}),
    sums=("bot.ci.trunk.changed_days:BRANCHES", "bot.ci.trunk.changed_days:RUNNERS"),
    periodic="bot.ci.trunk.feature:periodic",
    before_commit="bot.ci.trunk.cell_index:write",
    views="bot.ci.trunk.views.routes:VIEWS",
    routes="bot.ci.trunk.views.routes:setup",
    sections={
        "pull": "bot.ci.trunk.sections:of_pull",
        "commit": "bot.ci.trunk.sections:of_commit",
        "run": "bot.ci.trunk.job_times:of_run",
    },
    prune="bot.ci.trunk.prune:prune",
    metrics="bot.ci.trunk.gauge:measure",
    doctor="bot.ci.trunk.doctor:check",
    home="bot.ci.trunk.views.home:find_home",
    settings="bot.ci.trunk.settings:TrunkSettings",
)
