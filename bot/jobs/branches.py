"""Branches: which are watched, which were deleted, which checks GitHub requires, which daily sums a change concerns."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, OverBudget
from bot.core.json_fields import Kind, read_member
from bot.db.rows import select
from bot.jobs import collection, job_names, rows
from bot.jobs.settings import BRANCHES_MOST, TrunkSettings
from bot.jobs.tables import (
    BranchRuleRow,
    branch_commit,
    branch_rule,
    ci_day,
    ci_line,
    ci_runner_day,
    trunk_branch,
)
from bot.queue import sums
from bot.queue.sums import DAY, Sum, SumPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PushRow
    from bot.jobs.rows import RepositoryRow

COMMIT = branch_commit.c
SUM_DELAY = 30.0  # seconds in which further changes of a day are awaited
BRANCHES = Sum(
    name="branches",
    tables=(ci_day, ci_line),
    group=("repository_id", "branch"),
    count="bot.jobs.daily_sums:count_branch",
    after="bot.jobs.column_changes:request_changes",
    delay=SUM_DELAY,
)
RUNNERS = Sum(
    name="runners",
    tables=(ci_runner_day,),
    group=("repository_id",),
    count="bot.jobs.daily_sums:count_runners",
    after="bot.jobs.branches:note_runners",
    delay=SUM_DELAY,
)
DAYS_OF = (
    sa.select(COMMIT.repository_id, COMMIT.branch, COMMIT.at)
    .where(COMMIT.sha.in_(sa.bindparam("shas", expanding=True)))
    .distinct()
)
HEADS = "refs/heads/"
BRANCH, RULE = trunk_branch.c, branch_rule.c
log = structlog.get_logger("bot.jobs.branches")

RULES_EVERY = 3_600_000  # milliseconds
RULES_PAGE, RULES_PAGES_MOST = 100, 5  # rules of one call
CONTEXTS_MOST, CONTEXT_MOST = 500, 255


async def note_runners(tx: Transaction, place: SumPlace) -> None:
    """After a day of runners is counted, mark it as changed for sinks."""
    tx.note_changed("ci_runner_day", [{"repository_id": place.group[0], "day": place.day}])


def request_sums(tx: Transaction, repository_id: int, branches: Iterable[tuple[str, int]]) -> None:
    """Request new counts of days of branches, each given by name and a time in epoch milliseconds."""
    places = {SumPlace((repository_id, branch), at // DAY) for branch, at in branches}
    sums.request(tx, BRANCHES, places)


async def request_sums_of_commits(
    tx: Transaction, shas: Collection[str], runners: Collection[tuple[int, int]] = ()
) -> None:
    """Request new counts of the days that some commits are from, and of runners (repository and day)."""
    if shas:
        rows = await tx.run(DAYS_OF, {"shas": sorted(shas)})
        sums.request(tx, BRANCHES, {SumPlace((row.repository_id, row.branch), row.at // DAY) for row in rows})
    sums.request(tx, RUNNERS, (SumPlace((repository,), day) for repository, day in runners))


def is_watched(settings: Settings, repository: RepositoryRow, branch: str) -> bool:
    """Whether a branch is watched: the default one is, and those that CI_BRANCHES names."""
    globs = settings.of(TrunkSettings).ci_branches
    return branch == repository["default_branch"] or any(fnmatchcase(branch, glob) for glob in globs)


async def watched_branch_names(tx: Transaction, settings: Settings, repository: RepositoryRow) -> list[str]:
    """Return the default branch, then the other watched branches that exist, those with the newest commits first."""
    default = repository["default_branch"]
    chosen = [default] if default else []
    if settings.of(TrunkSettings).ci_branches:
        async for name in rows.every_branch(tx, repository["repository_id"]):
            if name != default and is_watched(settings, repository, name):
                chosen.append(name)
                if len(chosen) > BRANCHES_MOST:
                    break
    gone = await deleted_branches(tx, repository["repository_id"], chosen)
    return [name for name in chosen if name == default or name not in gone]


async def note_pushes(tx: Transaction, pushes: Iterable[PushRow]) -> None:
    """Note when branches were pushed to and deleted; the latest time counts, in whatever order they arrive."""
    rows: dict[tuple[int, str], dict[str, int]] = {}
    for push in pushes:
        reference = push["ref"] or ""
        if not reference.startswith(HEADS):
            continue
        place = (push["repository_id"], reference.removeprefix(HEADS))
        row = rows.setdefault(place, {"pushed_at": 0, "deleted_at": 0})
        name = "deleted_at" if push["deleted"] else "pushed_at"
        row[name] = max(row[name], push["received_at"])
    if not rows:
        return
    made = [{"repository_id": place[0], "branch": place[1], **rows[place]} for place in sorted(rows)]
    await tx.upsert(trunk_branch, made, greatest=("pushed_at", "deleted_at"))


async def deleted_branches(tx: Transaction, repository_id: int, names: Collection[str]) -> frozenset[str]:
    """Return those of some branches that were deleted and not created again."""
    query = sa.select(BRANCH.branch).where(
        BRANCH.repository_id == repository_id,
        BRANCH.branch.in_(sorted(names)),
        BRANCH.deleted_at > BRANCH.pushed_at,
    )
    return frozenset((await tx.run(query)).scalars())


async def deleted_at(tx: Transaction, repository_id: int, branch: str) -> int | None:
    """Return when the deletion of a branch was received, None where the branch exists."""
    query = sa.select(BRANCH.deleted_at).where(
        BRANCH.repository_id == repository_id, BRANCH.branch == branch, BRANCH.deleted_at > BRANCH.pushed_at
    )
    deleted: int | None = (await tx.run(query)).scalar()
    return deleted


async def rule_of_branch(tx: Transaction, repository_id: int, branch: str) -> BranchRuleRow | None:
    """Return what GitHub said about the checks that a branch requires, None before it was asked."""
    query = select(BranchRuleRow, branch_rule)
    return await tx.fetch_first(query.where(RULE.repository_id == repository_id, RULE.branch == branch))


async def store_rule(tx: Transaction, row: BranchRuleRow) -> None:
    """Store what GitHub said about the checks that a branch requires, or just that it was asked."""
    await tx.upsert(branch_rule, [dict(row)], replaced=("contexts", "asked_at"))


async def ask_for_checks(context: Context, repo: str, repository_id: int, branch: str) -> None:
    """Ask GitHub which checks a branch requires, unless it was asked a short while ago."""
    async with context.store.read() as tx:
        known = await rule_of_branch(tx, repository_id, branch)
    now = context.clock.now()
    if known and now - known["asked_at"] < RULES_EVERY:
        return
    contexts = known["contexts"] if known else None
    try:
        contexts = await _read_rules(context, repo, branch)
    except OverBudget:
        return  # with the branch's next list: listing it once more now would use up what others wait for
    except GitHubRefused as error:
        log.info("the rules of a branch cannot be read", repo=repo, branch=branch, reason=str(error))
    row: BranchRuleRow = {
        "repository_id": repository_id,
        "branch": branch,
        "contexts": contexts,
        "asked_at": now,
    }
    async with context.store.transaction() as tx:
        await store_rule(tx, row)


async def required_names(tx: Transaction, repository_id: int, branch: str) -> frozenset[str]:
    """Return the names of the checks that a branch requires; none while GitHub has not said."""
    rule = await rule_of_branch(tx, repository_id, branch)
    return frozenset((rule["contexts"] or ()) if rule else ())


def names_of_jobs(contexts: Collection[str]) -> frozenset[str]:
    """Return the names of required checks; of jobs also without shard and runner, as columns are named."""
    parsed = [job_names.parse_name("", context) for context in contexts]
    return frozenset(contexts) | {name.job for name in parsed} | {name.numbered for name in parsed}


async def _read_rules(context: Context, repo: str, branch: str) -> list[str]:
    client = context.app_for(repo).caching(repo, metadata="read")
    url = client.path("rules/branches/{branch}{?per_page,page}")
    contexts: set[str] = set()
    for page in range(1, RULES_PAGES_MOST + 1):
        await collection.spend_call(context, repo)
        rules = await client.getitem(url, {"branch": branch, "per_page": str(RULES_PAGE), "page": str(page)})
        contexts.update(_contexts(rules))
        if len(rules) < RULES_PAGE:
            break
    return sorted(contexts)[:CONTEXTS_MOST]


def _contexts(rules: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the checks that rules require, reading GitHub's answer field by field."""
    for rule in rules:
        if read_member(rule, ("type",), Kind.TEXT) != "required_status_checks":
            continue
        for name in (
            read_member(rule, ("parameters", "required_status_checks[]", "context"), Kind.TEXTS) or ()
        ):
            yield name[:CONTEXT_MOST]
