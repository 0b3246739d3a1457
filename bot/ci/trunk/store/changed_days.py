"""Which daily sums a change concerns: those of the branches that a commit is on, and of a repository's runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit, ci_day, ci_line, ci_runner_day
from bot.queue import sums
from bot.queue.sums import DAY, Place, Sum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.db.transaction import Transaction

COMMIT = branch_commit.c
DELAY = 30.0  # seconds in which further changes of a day are awaited
BRANCHES = Sum(
    name="branches",
    tables=(ci_day, ci_line),
    group=("repository_id", "branch"),
    count="bot.ci.trunk.count_days:count_branch",
    after="bot.ci.trunk.record_changes:request",
    delay=DELAY,
)
RUNNERS = Sum(
    name="runners",
    tables=(ci_runner_day,),
    group=("repository_id",),
    count="bot.ci.trunk.count_days:count_runners",
    after="bot.ci.trunk.store.changed_days:note_runners",
    delay=DELAY,
)
DAYS_OF = (
    sa.select(COMMIT.repository_id, COMMIT.branch, COMMIT.at)
    .where(COMMIT.sha.in_(sa.bindparam("shas", expanding=True)))
    .distinct()
)


async def note_runners(tx: Transaction, place: Place) -> None:
    """Once a day of runners is counted: sinks may have a copy of it."""
    tx.note_changed("ci_runner_day", [{"repository_id": place.group[0], "day": place.day}])


def request(tx: Transaction, repository_id: int, branches: Iterable[tuple[str, int]]) -> None:
    """Have the days of branches counted again, given by name and a time in epoch milliseconds."""
    places = {Place((repository_id, branch), at // DAY) for branch, at in branches}
    sums.request(tx, BRANCHES, places)


async def request_of_commits(
    tx: Transaction, shas: Collection[str], runners: Collection[tuple[int, int]] = ()
) -> None:
    """Have the days counted again of the branches that some commits are on, and of runners: repository and day."""
    if shas:
        found = await tx.run(DAYS_OF, {"shas": sorted(shas)})
        sums.request(tx, BRANCHES, {Place((row.repository_id, row.branch), row.at // DAY) for row in found})
    sums.request(tx, RUNNERS, (Place((repository,), day) for repository, day in runners))
