"""Some days of a branch, as its metrics and the reliability of its jobs are counted from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.trunk import name_patterns, reading, trunk_numbers
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import day_rows
from bot.ci.trunk.store.changed_days import BRANCHES
from bot.ci.trunk.views.grid import BRANCH_MOST, address
from bot.queue import sums
from bot.queue.sums import DAY
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.store.day_rows import ColumnDay
    from bot.ci.trunk.tables import ColumnEvent, LineRow
    from bot.ci.trunk.trunk_numbers import JobReliability
    from bot.web.asked import Asked

EVENTS_MOST = 50
DAYS = declare.days()
BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
PARAMETERS = (REPO, DAYS, BRANCH)


@dataclass(frozen=True, kw_only=True)
class BranchDays:
    """Some days of a branch."""

    branch: Branch
    options: TrunkSettings
    days: int
    first: int
    last: int
    lines: list[LineRow]
    columns: list[ColumnDay]
    events: list[ColumnEvent]
    counted_until: int | None

    def jobs(self) -> list[JobReliability]:
        """Return the jobs, the least reliable first."""
        return trunk_numbers.reliability(
            self.columns,
            self.lines,
            rename=lambda workflow, name: name_patterns.shown_name(workflow, name, self.options),
        )

    def names(self) -> dict[str, Any]:
        """Return what every page about days shows."""
        return {
            "repo": self.branch.repository["full_name"],
            "branch": self.branch.name,
            "home": address(self.branch),
            "days": self.days,
            "windows": parameters.windows(self.days),
            "counted_until": self.counted_until,
        }

    def link(self) -> dict[str, object]:
        """Return what the address of a page's JSON says."""
        return {"repo": self.branch.repository["full_name"], "days": self.days}


async def read_days(asked: Asked, *, columns: bool) -> BranchDays:
    """Read some days, and up to when they are counted."""
    tx, days = asked.tx, asked[DAYS]
    branch = await reading.find_branch(tx, asked.hidden, asked[REPO], asked[BRANCH])
    identifier, last = branch.repository["repository_id"], tx.now // DAY
    first = last - days + 1
    return BranchDays(
        branch=branch,
        options=asked.settings.of(TrunkSettings),
        days=days,
        first=first,
        last=last,
        lines=await day_rows.line_days(tx, identifier, branch.name, first),
        columns=await day_rows.column_days(tx, identifier, branch.name, first) if columns else [],
        events=await day_rows.events(tx, identifier, branch.name, EVENTS_MOST),
        counted_until=await sums.counted_until(tx, BRANCHES, [identifier], first=first),
    )
