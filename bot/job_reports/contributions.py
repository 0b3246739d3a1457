"""Contributions of outside people: which pull requests they are, and what was merged, day by day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.db.rows import select
from bot.ingest.record_rows import PullRow
from bot.ingest.retention import delete_rows
from bot.ingest.tables import records
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.tables import ContributionDayRow, ContributionRow, contribution_day, contribution_pull
from bot.queue import sums
from bot.queue.sums import Sum, SumPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import CountedSum
    from bot.queue.tasks import Task

DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
REVERTED_LABEL = "Reverted"
BOT_SUFFIX = "[bot]"
OPEN, MERGED = "open", "merged"
PULL, REVIEW = records["pull_request"], records["pull_review"].c
CONTRIBUTION, CONTRIBUTION_DAY = contribution_pull.c, contribution_day.c
REPLACED_COLUMNS = ("login", "state", "created_at", "day", "merged_at", "reviewed_at")
PULLS_MOST = 10_000  # of a day
CONTRIBUTION_TASK = "contributions"
AWAITED_SECONDS = 20.0  # seconds in which further changes of a pull request are awaited
CONTRIBUTION_SUM = Sum(
    name="contributions",
    tables=(contribution_day,),
    group=("repository_id",),
    count="bot.job_reports.contributions:count_contribution_day",
    after="bot.job_reports.contributions:note_counted_day",
    delay=10,
)


def describe_contribution(
    pull: PullRow, settings: JobReportSettings, reviewed_at: int | None
) -> ContributionRow | None:
    """Return a pull request as a contribution; None if it is none, or neither open nor merged."""
    login, created_at = pull["user_login"], pull["created_at"]
    if (
        login is None
        or created_at is None
        or pull["number"] is None
        or not _is_outside(pull, login, settings)
    ):
        return None
    merged_at = _merged_at(pull, settings)
    if merged_at is None and (pull["state"] != OPEN or pull["draft"]):
        return None
    return {
        "repository_id": pull["repository_id"],
        "number": pull["number"],
        "login": login,
        "state": OPEN if merged_at is None else MERGED,
        "created_at": created_at,
        "day": None if merged_at is None else merged_at // DAY,
        "merged_at": merged_at,
        "reviewed_at": reviewed_at,
    }


def hours_between(start: int, end: int) -> float:
    """Return the hours between two times, to a tenth."""
    return round(max(end - start, 0) / HOUR, 1)


async def find_pull(tx: Transaction, repository_id: int, number: int) -> PullRow | None:
    """Return a pull request."""
    query = select(PullRow, PULL).where(PULL.c.number == number, PULL.c.repository_id == repository_id)
    return await tx.fetch_first(query)


async def first_review(tx: Transaction, pull: PullRow, api_url: str) -> int | None:
    """Return when a member first reviewed a pull request of another author."""
    query = sa.select(sa.func.min(REVIEW.submitted_at)).where(
        REVIEW.repository_id == pull["repository_id"],
        REVIEW.pull_request_url == f"{api_url}/repos/{pull['repo']}/pulls/{pull['number']}",
        REVIEW.author_association.in_(sorted(MEMBERS)),
        REVIEW.user_login != pull["user_login"],
    )
    submitted_at: int | None = (await tx.run(query)).scalar()
    return submitted_at


async def find_contribution(tx: Transaction, repository_id: int, number: int) -> ContributionRow | None:
    """Return a stored contribution."""
    query = select(ContributionRow, contribution_pull)
    return await tx.fetch_first(
        query.where(CONTRIBUTION.repository_id == repository_id, CONTRIBUTION.number == number)
    )


async def put_contribution(tx: Transaction, row: ContributionRow) -> None:
    """Store a contribution."""
    await tx.upsert(contribution_pull, [row], replaced=REPLACED_COLUMNS)
    tx.note_changed("contribution_pull", [row])


async def delete_contribution(tx: Transaction, repository_id: int, number: int) -> None:
    """Delete a contribution."""
    await tx.run(
        sa.delete(contribution_pull).where(
            CONTRIBUTION.repository_id == repository_id, CONTRIBUTION.number == number
        )
    )
    tx.note_changed("contribution_pull", [{"repository_id": repository_id, "number": number}])


async def first_days(tx: Transaction, repository_id: int, login: str) -> list[int]:
    """Return the first two days with merged pull requests of an author: on one of these the author is new."""
    query = sa.select(CONTRIBUTION.day).where(
        CONTRIBUTION.repository_id == repository_id,
        CONTRIBUTION.login == login,
        CONTRIBUTION.day.is_not(None),
    )
    return list((await tx.run(query.distinct().order_by(CONTRIBUTION.day).limit(2))).scalars())


async def merged_on(tx: Transaction, repository_id: int, day: int) -> list[ContributionRow]:
    """Return what was merged on a day."""
    query = select(ContributionRow, contribution_pull).where(
        CONTRIBUTION.repository_id == repository_id, CONTRIBUTION.day == day, CONTRIBUTION.state == MERGED
    )
    return await tx.fetch(query.order_by(CONTRIBUTION.number).limit(PULLS_MOST))


async def known_before(tx: Transaction, repository_id: int, logins: Collection[str], day: int) -> set[str]:
    """Return which people had something merged before a day."""
    query = sa.select(CONTRIBUTION.login).where(
        CONTRIBUTION.repository_id == repository_id,
        CONTRIBUTION.login.in_(sorted(logins)),
        CONTRIBUTION.day < day,
    )
    return set((await tx.run(query.distinct())).scalars())


async def read_days(tx: Transaction, owners: Collection[int], *, first: int) -> list[ContributionDayRow]:
    """Return the days from a day on."""
    query = select(ContributionDayRow, contribution_day)
    return await tx.fetch(
        query.where(
            CONTRIBUTION_DAY.repository_id.in_(sorted(owners)), CONTRIBUTION_DAY.day >= first
        ).order_by(CONTRIBUTION_DAY.day)
    )


async def read_waiting(
    tx: Transaction, owners: Collection[int], *, before: int, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many open pull requests of outside people no member has reviewed, and the oldest of them."""
    these = (
        CONTRIBUTION.repository_id.in_(sorted(owners)),
        CONTRIBUTION.state == OPEN,
        CONTRIBUTION.created_at < before,
        CONTRIBUTION.reviewed_at.is_(None),
    )
    counted = sa.select(sa.func.count()).select_from(contribution_pull).where(*these)
    same = (PULL.c.repository_id == CONTRIBUTION.repository_id) & (PULL.c.number == CONTRIBUTION.number)
    oldest = sa.select(
        CONTRIBUTION.number, CONTRIBUTION.created_at, PULL.c.title, PULL.c.html_url
    ).select_from(contribution_pull.join(PULL, same))
    rows = await tx.run(
        oldest.where(*these).order_by(CONTRIBUTION.created_at, CONTRIBUTION.number).limit(limit)
    )
    return int((await tx.run(counted)).scalar_one()), rows.mappings()


async def delete_days(context: Context, *, first: int) -> dict[str, int]:
    """Delete days past the retention of records; who contributed before is kept."""
    return {
        "days of contributions": await delete_rows(context, contribution_day, CONTRIBUTION_DAY.day < first)
    }


async def request_changed_pulls(tx: Transaction, changed: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Before a commit: request a look at pull requests that changed or were reviewed."""
    for row in changed.get("pull_request", ()):
        if row["number"]:
            _request_pull(tx, row["repository_id"], row["number"])
    for row in changed.get("pull_review", ()):
        number = (row["pull_request_url"] or "").rpartition("/")[2]
        if number.isascii() and number.isdigit():
            _request_pull(tx, row["repository_id"], int(number))


async def describe_pull(context: Context, task: Task) -> None:
    """Store a pull request's contribution. Key: `repository id/number`."""
    repository_id, number = _parse_key(task.key)
    settings = context.settings.of(JobReportSettings)
    async with context.store.transaction() as tx:
        before = await find_contribution(tx, repository_id, number)
        pull = await find_pull(tx, repository_id, number)
        reviewed = await first_review(tx, pull, context.settings.github_api_url) if pull else None
        now = describe_contribution(pull, settings, reviewed) if pull else None
        if now == before:
            return
        days = await _days_of_logins(tx, before, now)
        if now is None:
            await delete_contribution(tx, repository_id, number)
        else:
            await put_contribution(tx, now)
        days |= await _days_of_logins(tx, before, now)
        sums.request(tx, CONTRIBUTION_SUM, [SumPlace((repository_id,), day) for day in sorted(days)])


async def note_counted_day(tx: Transaction, place: SumPlace) -> None:
    """Tell sinks of a counted day."""
    tx.note_changed("contribution_day", [{"repository_id": place.group[0], "day": place.day}])


async def count_contribution_day(context: Context, place: SumPlace) -> CountedSum:
    """Return the sums of what was merged on a day."""
    (repository_id,) = place.group
    async with context.store.read() as tx:
        pulls = await merged_on(tx, repository_id, place.day)
        users = {pull["login"] for pull in pulls}
        known = await known_before(tx, repository_id, users, place.day) if users else set()
    if not pulls:
        return {contribution_day: []}
    return {contribution_day: [_sum_of_day(pulls, users, known)]}


async def prune_contributions(context: Context) -> dict[str, int]:
    """Delete days past the retention of records."""
    kept = context.settings.record_retention_days
    return await delete_days(context, first=context.clock.now() // DAY - kept)


def _is_outside(pull: PullRow, login: str, settings: JobReportSettings) -> bool:
    if login.endswith(BOT_SUFFIX) or login.casefold() in {bot.casefold() for bot in settings.ci_bots}:
        return False
    if settings.ci_external_label:
        return settings.ci_external_label in (pull["labels"] or ())
    return pull["author_association"] is not None and pull["author_association"] not in MEMBERS


def _merged_at(pull: PullRow, settings: JobReportSettings) -> int | None:
    labels = set(pull["labels"] or ())
    if REVERTED_LABEL in labels:
        return None
    if pull["merged_at"] is not None:
        return pull["merged_at"]
    closed = pull["state"] == "closed" and labels & set(settings.ci_merged_labels)
    return pull["closed_at"] if closed else None


def _request_pull(tx: Transaction, repository_id: int, number: int) -> None:
    tx.enqueue(CONTRIBUTION_TASK, f"{repository_id}/{number}", delay=AWAITED_SECONDS, replayed=True)


async def _days_of_logins(tx: Transaction, *rows: ContributionRow | None) -> set[int]:
    """Return the days of contributions, and the days on which their authors may be new."""
    days: set[int] = set()
    for row in rows:
        if row is not None:
            days |= {row["day"]} if row["day"] is not None else set()
            days |= set(await first_days(tx, row["repository_id"], row["login"]))
    return days


def _sum_of_day(pulls: Sequence[ContributionRow], users: set[str], known: set[str]) -> dict[str, Any]:
    reviewed = [
        (pull["created_at"], pull["reviewed_at"]) for pull in pulls if pull["reviewed_at"] is not None
    ]
    merged = [(pull["created_at"], pull["merged_at"]) for pull in pulls if pull["merged_at"] is not None]
    return {
        "pr_count": len(pulls),
        "users": sorted(users),
        "new_users": len(users - known),
        "review_hours": sorted(hours_between(*times) for times in reviewed),
        "merge_hours": sorted(hours_between(*times) for times in merged),
    }


def _parse_key(text: str) -> tuple[int, int]:
    try:
        repository_id, number = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no pull request") from None
    return repository_id, number
