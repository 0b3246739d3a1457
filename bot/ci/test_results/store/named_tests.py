"""Tests found by what people call them, with their days and states: for the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results.store import count_days, evaluate_states, rows
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import TestRow, test, test_class
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.test_results.day_counts import Counts
    from bot.ci.test_results.tables import StateRow
    from bot.db.transaction import Transaction

MOST = 20  # tests of one name
SEPARATOR = "::"


class NamedTest(NamedTuple):
    """A test, what trusted runs said of it by day and group of environments, and its states."""

    row: TestRow
    days: dict[int, dict[str, Counts]]  # days since 1970
    states: list[StateRow]


async def find_tests(tx: Transaction, repo: str, name: str) -> list[TestRow]:
    """Return a repository's tests of a name, or of suite::name, or of file::suite::name, the newest first."""
    *place, last = name.split(SEPARATOR, 2)
    wanted = [test.c.repository_id.in_(sorted(await watched.ids(tx, repo))), test.c.name == last]
    if place:
        wanted.append(test_class.c.suite == place[-1])
    if len(place) > 1:
        wanted.append(test_class.c.file == place[0])
    query = rows.TESTS.where(*wanted).order_by(test.c.last_at.desc(), test.c.digest).limit(MOST)
    return await tx.fetch(query)


async def with_history(tx: Transaction, found: list[TestRow], *, days: int) -> list[NamedTest]:
    """Return tests with their last days."""
    today = tx.now // DAY
    states = await evaluate_states.states_of_tests(tx, {row["id"] for row in found})
    named = []
    for row in found:
        counted = await count_days.days_of_tests(
            tx, row["repository_id"], [row["id"]], since=today - days + 1, until=today
        )
        mine = [state for state in states if state["test_id"] == row["id"]]
        named.append(NamedTest(row, counted.get(row["id"], {}), mine))
    return named
