"""What a search must notice: changed rows, force-pushed branches, recovered culprits, new breakages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa
import structlog

from bot.core import text
from bot.core.errors import GitHubRefused
from bot.ingest.tables import records
from bot.jobs import branch_history, branch_reads
from bot.jobs import rows as branch_rows
from bot.jobs.branches import HEADS
from bot.jobs.tables import branch_commit
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits import rows, signals
from bot.oot.culprits.start import (
    LEAST_LEVEL,
    OURSELVES,
    SEARCH_KIND,
    Refused,
    SignalPlace,
    WantedSearch,
    start_search,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.culprits.tables import BisectRow
    from bot.queue.tasks import Task

CHANGED_TABLES = ("oot_workflow_job", "oot_dispatch", "workflow_job", "workflow_run")
CHANGES_DELAY = 2.0  # seconds: reports come in batches
log = structlog.get_logger("bot.oot.culprits.scan")

BRANCH_KIND = "bisect_branch"
HOLDS = frozenset({"ahead", "identical"})  # what GitHub calls a branch that has a commit, compared with that
COMMIT, PUSH = branch_commit.c, records["push"].c
LATER_MOST = 2_000  # commits that are looked at
COMMITS_AT_ONCE = 500
RECOVERED_WITHIN = 60 * 86_400_000  # milliseconds after a find
SHA_LEAST = 10  # digits of a SHA that name a commit in a message
REASON = "its entry says `bisect: auto`"


class LaterCommit(NamedTuple):
    """A commit after a culprit."""

    sha: str
    title: str
    message: str  # empty where no push told of it


class SearchCounts(NamedTuple):
    """How successful searches were."""

    found: int  # those that named one commit
    mended: int  # of these culprits
    median_hours: float | None  # from the request to the find


async def before_commit(tx: Transaction, changed: Changed) -> None:
    """Wake the searches that changed rows concern; there are few."""
    if any(_ended(table, changed) for table in CHANGED_TABLES):
        for identifier in await rows.open_ids(tx):
            tx.enqueue(SEARCH_KIND, identifier, delay=CHANGES_DELAY)
    for push in changed.get("push", ()):
        reference = push.get("ref") or ""
        if push.get("forced") and reference.startswith(HEADS):
            branch = reference.removeprefix(HEADS)
            for identifier in await rows.open_ids_on(tx, push["repository_id"], branch):
                tx.enqueue(BRANCH_KIND, identifier)
                tx.enqueue("branch", "")  # GitHub's list says what is gone


async def check_branch(context: Context, task: Task) -> None:
    """End a search whose bad end is no longer on its branch."""
    async with context.store.read() as tx:
        search = await rows.get_search(tx, task.key)
    if search is None or search["ended_at"] is not None or await _is_on_branch(context, search):
        return
    async with context.store.transaction() as tx:
        search = await rows.get_search(tx, task.key, held=True)
        if search is not None and search["ended_at"] is None:
            why = describe_force_pushed(search, [search["bad_sha"]])
            await rows.end_search(tx, search["id"], state="gave_up", why=why)
    log.info("search over: its branch was rewritten", search=task.key)


async def find_gone(tx: Transaction, search: BisectRow) -> list[str]:
    """Return the ends of a search that are known to have left its branch."""
    gone = []
    for sha in (search["good_sha"], search["bad_sha"]):
        row = await branch_rows.commit(tx, search["repository_id"], search["branch"], sha)
        if row is None or row["gone"]:
            gone.append(sha)
    return gone


def describe_force_pushed(search: BisectRow, gone: list[str]) -> str:
    """Say that a branch changed since its search began, and what can be done."""
    good, bad = text.short(search["good_sha"]), text.short(search["bad_sha"])
    what = f"{good} and {bad} are no longer one after the other on it"
    if gone:
        names = " and ".join(text.short(sha) for sha in gone)
        what = f"{names} {'is' if len(gone) == 1 else 'are'} no longer on it"
    return f"{search['branch']} was rewritten: {what}; once the job fails on the new commits, begin again"


async def read_later_commits(tx: Transaction, search: BisectRow) -> list[LaterCommit]:
    """Return the commits of its branch after a culprit, the oldest first."""
    here = (COMMIT.repository_id == search["repository_id"], COMMIT.branch == search["branch"])
    at = sa.select(COMMIT.at).where(*here, COMMIT.sha == search["culprit_sha"]).scalar_subquery()
    query = sa.select(COMMIT.sha, COMMIT.title).where(
        *here, COMMIT.at >= at, COMMIT.sha != search["culprit_sha"]
    )
    later = (await tx.run(query.order_by(COMMIT.at, COMMIT.sha).limit(LATER_MOST))).all()
    messages: dict[str, str] = {}
    for start in range(0, len(later), COMMITS_AT_ONCE):
        shas = [sha for sha, _ in later[start : start + COMMITS_AT_ONCE]]
        told = sa.select(PUSH.after, PUSH.head_commit_message).where(
            PUSH.repository_id == search["repository_id"], PUSH.after.in_(shas)
        )
        messages |= {sha: message or "" for sha, message in await tx.run(told)}
    return [LaterCommit(sha, title, messages.get(sha, "")) for sha, title in later]


async def note_recovered(tx: Transaction, repo: str) -> None:
    """Record which later commits revert or fix a repository's culprits."""
    branch = await branch_history.find_branch_of(tx, repo, "")
    if branch is None:
        return
    identifier = branch.repository["repository_id"]
    for search in await rows.read_found_since(tx, identifier, tx.now - RECOVERED_WITHIN):
        if search["mended_sha"] is None:
            later = await read_later_commits(tx, search)
            if recovery := find_recovery(search, later):
                await rows.change_search(tx, search["id"], mended_sha=recovery)


def find_recovery(search: BisectRow, later: Iterable[LaterCommit]) -> str | None:
    """Return the first commit that says that it reverts or fixes the culprit."""
    sha, number = (search["culprit_sha"] or "")[:SHA_LEAST], search["pr_number"]
    title = (search["title"] or "").removesuffix(f" (#{number})").casefold()
    for commit in later:
        words, message = commit.title.casefold(), commit.message.casefold()
        reverts = words.startswith("revert") and (bool(title) and title in words)
        names_sha = bool(sha) and (f"reverts commit {sha}" in message or f"fixes {sha}" in message)
        names_pull = bool(number) and any(
            f"{verb} #{number}" in f"{words} {message}"
            and not f"{words} {message}".split(f"{verb} #{number}")[1][:1].isdigit()
            for verb in ("reverts", "revert")
        )
        if reverts or names_sha or names_pull:
            return commit.sha
    return None


async def read_measures(tx: Transaction, repository_id: int | None) -> SearchCounts:
    """Return how successful the searches of a year were."""
    searches = await rows.read_found_since(tx, repository_id, tx.now - rows.RECENT)
    hours = sorted((row["ended_at"] - row["created_at"]) / 3_600_000 for row in searches if row["ended_at"])
    middle = len(hours) // 2
    median = None
    if hours:
        median = hours[middle] if len(hours) % 2 else (hours[middle - 1] + hours[middle]) / 2
    return SearchCounts(
        found=len(searches),
        mended=sum(row["mended_sha"] is not None for row in searches),
        median_hours=median,
    )


async def scan(context: Context, _task: Task) -> None:
    """Begin searches that are due, wake those under way, and note recovered culprits."""
    async with context.store.transaction() as tx:
        for identifier in await rows.open_ids(tx):
            tx.enqueue(SEARCH_KIND, identifier)
        listed = await allowlists.read_in_force(tx)
    automatic = [
        entry
        for entry in (listed.entries if listed else ())
        if entry.bisect.mode == "auto" and entry.level >= LEAST_LEVEL
    ]
    for repo in context.settings.upstream_repo:
        for entry in automatic:
            await _begin_due(context, repo, entry)
        async with context.store.transaction() as tx:
            await note_recovered(tx, repo)


def _ended(table: str, changed: Changed) -> bool:
    """Whether a job, run or dispatch has come to an end."""
    if table == "oot_dispatch":
        return any(row.get("state") not in {"pending", "sent"} for row in changed.get(table, ()))
    return any(row.get("status") == "completed" for row in changed.get(table, ()))


async def _is_on_branch(context: Context, search: BisectRow) -> bool:
    """Whether GitHub has the bad end on the branch; where it does not say, the list of the branch decides."""
    client = context.github.client(search["upstream_repo"], contents="read")
    compared = {"basehead": f"{search['bad_sha']}...{search['branch']}"}
    try:
        comparison = await client.getitem(client.path("compare/{basehead}"), compared)
    except GitHubRefused as error:
        log.info("the branch cannot be compared", search=search["id"], reason=str(error))
        return not error.gone
    return comparison.get("status") in HOLDS


async def _begin_due(context: Context, repo: str, entry: Entry) -> None:
    """Begin a search for each broken job of a backend, once per breakage."""
    async with context.store.read() as tx:
        due = await _due(tx, context.settings, repo, entry)
    for job in due:
        wanted = WantedSearch(repo=repo, backend=entry.repo, what=job, by=OURSELVES, reason=REASON)
        try:
            async with context.store.transaction() as tx:
                started = await start_search(tx, context.settings, wanted)
        except Refused as refusal:
            log.info("no search begun", repo=repo, backend=entry.repo, job=job, reason=str(refusal))
            continue
        if started.is_new:
            log.info("search begun", search=started.row["id"], repo=repo, backend=entry.repo, job=job)


async def _due(tx: Transaction, settings: Settings, repo: str, entry: Entry) -> list[str]:
    known_branch = await branch_history.find_branch_of(tx, repo, "")
    name = known_branch and known_branch.repository["default_branch"]
    if known_branch is None or not name:
        return []
    branch = branch_reads.Branch(repository=known_branch.repository, names=known_branch.names, name=name)
    commits, _ = await branch_reads.newest_commits(tx, branch, before=None, limit=signals.LINES)
    seen = await signals.read_history(tx, settings, branch, entry.repo, commits)
    place = SignalPlace(branch=branch, backend=entry.repo, label=entry.label)
    due = []
    for job in seen.broken_jobs():
        breakage = branch_history.breakage(seen.column(job))
        if breakage is None or breakage.last_good is None or len(breakage.suspects) < 2:
            continue  # nothing between, or nothing to begin from
        bad = seen.grid.lines[breakage.first_bad].commit["sha"]
        if await rows.last_of_breakage(tx, place.signal(job), bad) is None:
            due.append(job)
    return due
