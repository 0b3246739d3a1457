"""Contributions as pull requests change: a task looks at each, and its day is counted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.extras.contributions import outsiders, pull_rows
from bot.ci.extras.contributions.outsiders import DAY, ContributionSettings, hours_between
from bot.ci.extras.contributions.tables import contribution_day
from bot.core.errors import GiveUp
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.extras.contributions.tables import ContributionRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted
    from bot.queue.tasks import Task

TASK = "contributions"
TOGETHER = 20.0  # seconds in which further changes of a pull request are awaited
CONTRIBUTIONS = Sum(
    name="contributions",
    tables=(contribution_day,),
    group=("repository_id",),
    count="bot.ci.extras.contributions.count_days:count_day",
    after="bot.ci.extras.contributions.count_days:note_counted",
    delay=10,
)


async def note_changed(tx: Transaction, changed: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Before a commit: have the pull requests looked at that changed, or were reviewed."""
    for row in changed.get("pull_request", ()):
        if row["number"]:
            _request(tx, row["repository_id"], row["number"])
    for row in changed.get("pull_review", ()):
        number = (row["pull_request_url"] or "").rpartition("/")[2]
        if number.isascii() and number.isdigit():
            _request(tx, row["repository_id"], int(number))


def _request(tx: Transaction, repository_id: int, number: int) -> None:
    tx.enqueue(TASK, f"{repository_id}/{number}", delay=TOGETHER, replayed=True)


async def describe_pull(context: Context, task: Task) -> None:
    """Store what a pull request contributes. Key: `repository id/number`."""
    repository_id, number = _key(task.key)
    settings = context.settings.of(ContributionSettings)
    async with context.store.transaction() as tx:
        before = await pull_rows.find_contribution(tx, repository_id, number)
        pull = await pull_rows.find_pull(tx, repository_id, number)
        reviewed = await pull_rows.first_review(tx, pull, context.settings.github_api_url) if pull else None
        now = outsiders.describe(pull, settings, reviewed) if pull else None
        if now == before:
            return
        days = await _days_of_logins(tx, before, now)
        if now is None:
            await pull_rows.delete_contribution(tx, repository_id, number)
        else:
            await pull_rows.put_contribution(tx, now)
        days |= await _days_of_logins(tx, before, now)
        sums.request(tx, CONTRIBUTIONS, [Place((repository_id,), day) for day in sorted(days)])


async def _days_of_logins(tx: Transaction, *rows: ContributionRow | None) -> set[int]:
    """Return the days of contributions, and those on which their authors may be new."""
    found: set[int] = set()
    for row in rows:
        if row is not None:
            found |= {row["day"]} if row["day"] is not None else set()
            found |= set(await pull_rows.first_days(tx, row["repository_id"], row["login"]))
    return found


async def note_counted(tx: Transaction, place: Place) -> None:
    """Once a day is counted: sinks may have a copy of it."""
    tx.note_changed("contribution_day", [{"repository_id": place.group[0], "day": place.day}])


async def count_day(context: Context, place: Place) -> Counted:
    """Return what was merged on a day; never cumulative."""
    (repository_id,) = place.group
    async with context.store.read() as tx:
        pulls = await pull_rows.merged_on(tx, repository_id, place.day)
        users = {one["login"] for one in pulls}
        known = await pull_rows.known_before(tx, repository_id, users, place.day) if users else set()
    if not pulls:
        return {contribution_day: []}
    return {contribution_day: [_sum(pulls, users, known)]}


def _sum(pulls: Sequence[ContributionRow], users: set[str], known: set[str]) -> dict[str, Any]:
    reviewed = [(one["created_at"], one["reviewed_at"]) for one in pulls if one["reviewed_at"] is not None]
    merged = [(one["created_at"], one["merged_at"]) for one in pulls if one["merged_at"] is not None]
    return {
        "pr_count": len(pulls),
        "users": sorted(users),
        "new_users": len(users - known),
        "review_hours": sorted(hours_between(*times) for times in reviewed),
        "merge_hours": sorted(hours_between(*times) for times in merged),
    }


def _key(text: str) -> tuple[int, int]:
    try:
        repository_id, number = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no pull request") from None
    return repository_id, number


async def prune(context: Context) -> dict[str, int]:
    """Delete days past the retention of records."""
    kept = context.settings.record_retention_days
    return await pull_rows.delete_days(context, first=context.clock.now() // DAY - kept)
