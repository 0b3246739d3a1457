"""Task pull_closes: which issues a pull request closes, by its description and the messages of its commits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import re2
import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, GiveUp
from bot.core.json_fields import FULL_NAME
from bot.db.rows import select
from bot.evidence.disabled.tables import ci_disabling, ci_pull_closes
from bot.ingest.record_rows import PullRow
from bot.ingest.tables import records
from bot.jobs import collection

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.evidence.disabled.tables import DisablingRow
    from bot.queue.tasks import Task

TEXT_MOST = 262_144  # characters of one text; GitHub allows descriptions of 65,536
ISSUES_MOST = 1_000  # closed by one text
_REPO = FULL_NAME.pattern
_CLOSES = re2.compile(
    r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?::\s*|\s+)"
    rf"(?:({_REPO})?#|https?://[a-z0-9.:-]{{1,100}}/({_REPO})/issues/)([0-9]{{1,10}})\b"
)
_HIDDEN = re2.compile(r"(?s)<!--.*?(?:-->|$)|(?m:^)[ \t]*```.*?(?:(?m:^)[ \t]*```|$)|`[^`\n]*`")
Issue = tuple[str, int]  # repository, case folded, and number
PULL, CLOSES = records["pull_request"].c, ci_pull_closes.c
UNREAD_MOST = 200  # pull requests whose commits are read after one look
_READ = sa.and_(
    CLOSES.repository_id == PULL.repository_id, CLOSES.number == PULL.number, CLOSES.head_sha == PULL.head_sha
)
log = structlog.get_logger("bot.evidence.disabled.pull_closes")

PAGE, MOST_PAGES = 100, 3  # GitHub lists no more than 250 commits of a pull request


def closed_issues(text: str, repo: str) -> set[tuple[str, int]]:
    """Return the repository (case-folded) and number of each issue that a text in a repository closes."""
    closed: set[tuple[str, int]] = set()
    rest = text[:TEXT_MOST]
    for match in _CLOSES.finditer(rest):
        named, addressed, number = match.groups()
        closed.add(((named or addressed or repo).casefold(), int(number)))
        if len(closed) == ISSUES_MOST:
            break
    return closed


def closed_by_description(text: str, repo: str) -> set[tuple[str, int]]:
    """Return the issues that a pull request's description closes; comments and code in it close nothing."""
    return closed_issues(_HIDDEN.sub(" ", text[:TEXT_MOST]), repo)


async def find_pull(tx: Transaction, repository_id: int, number: int) -> PullRow | None:
    """Return a pull request."""
    query = select(PullRow, records["pull_request"])
    query = query.where(PULL.repository_id == repository_id, PULL.number == number)
    return await tx.fetch_first(query.limit(1))


async def issues_closed_by(tx: Transaction, repository_id: int, number: int) -> set[Issue]:
    """Return the issues that a pull request closes by its description and the commits read so far."""
    pull = await find_pull(tx, repository_id, number)
    if pull is None:
        return set()
    query = sa.select(CLOSES.issues).where(CLOSES.repository_id == repository_id, CLOSES.number == number)
    by_commits = (await tx.run(query)).scalar() or []
    described = closed_by_description(pull["body"] or "", pull["repo"])
    return described | {(repo, issue) for repo, issue in by_commits}


async def store_closed(
    tx: Transaction, repository_id: int, number: int, head_sha: str, issues: Iterable[Issue]
) -> None:
    """Store the issues that the commits up to a head close."""
    new = {"head_sha": head_sha, "issues": sorted(issues)}
    insert = tx.insert(ci_pull_closes).values(repository_id=repository_id, number=number, **new)
    await tx.run(insert.on_conflict_do_update(index_elements=["repository_id", "number"], set_=new))


async def unread_pulls(
    tx: Transaction, repository_id: int, numbers: Collection[int] | None = None
) -> list[int]:
    """Return the open pull requests whose commits have not been read up to the head, the newest first.

    There are none in a repository whose issues disable nothing.
    """
    disables = sa.exists().where(ci_disabling.c.repository_id == repository_id, ci_disabling.c.listed)
    query = sa.select(PULL.number).where(
        PULL.repository_id == repository_id,
        PULL.state == "open",
        PULL.deleted_at.is_(None),
        PULL.head_sha.is_not(None),
        disables,
        ~sa.exists().where(_READ),
    )
    if numbers is not None:
        query = query.where(PULL.number.in_(sorted(numbers)))
    return list((await tx.run(query.order_by(PULL.number.desc()).limit(UNREAD_MOST))).scalars())


async def forget_closed(tx: Transaction) -> int:
    """Delete the rows of pull requests that are no longer open."""
    is_open = sa.exists().where(
        PULL.repository_id == CLOSES.repository_id, PULL.number == CLOSES.number, PULL.state == "open"
    )
    return (await tx.run(sa.delete(ci_pull_closes).where(~is_open))).rowcount


def without_closed(
    issues: Iterable[DisablingRow], repo: str, closed: Collection[Issue]
) -> list[DisablingRow]:
    """Return the issues of a repository that are not in `closed`."""
    return [issue for issue in issues if (repo.casefold(), issue["number"]) not in closed]


def request_pull(tx: Transaction, repository_id: int, number: int) -> None:
    """Request a reading of a pull request's commits."""
    tx.enqueue("pull_closes", f"{repository_id}/{number}")


async def request_changed_pulls(tx: Transaction, changed: Changed) -> None:
    """Request a reading of the commits of pull requests with a new head, if their repository disables anything."""
    pulls: defaultdict[int, set[int]] = defaultdict(set)
    for row in changed.get("pull_request", ()):
        if row["state"] == "open" and row["number"] is not None:
            pulls[row["repository_id"]].add(row["number"])
    for repository_id, numbers in sorted(pulls.items()):
        for number in await unread_pulls(tx, repository_id, numbers):
            request_pull(tx, repository_id, number)


async def read_pull_commits(context: Context, task: Task) -> None:
    """Read the commits of a pull request. Key: repository's id and number, by `/`."""
    identifier, _, number = task.key.partition("/")
    if not (identifier.isdigit() and number.isdigit()):
        raise GiveUp(f"{task.key!r} is no pull request")
    async with context.store.read() as tx:
        pull = await find_pull(tx, int(identifier), int(number))
    if pull is None or pull["head_sha"] is None:
        return
    closed: set[Issue] = set()
    try:
        for message in await _messages(context, pull["repo"], int(number), since=task.created_at):
            closed |= closed_issues(message, pull["repo"])
    except GitHubRefused as error:  # its description still counts
        log.info("commits cannot be read", repo=pull["repo"], pull=int(number), reason=str(error))
    async with context.store.transaction() as tx:
        await store_closed(tx, int(identifier), int(number), pull["head_sha"], closed)


async def _messages(context: Context, repo: str, number: int, *, since: int) -> list[str]:
    client = context.app_for(repo).client(repo, since=since, pull_requests="read")
    messages: list[str] = []
    for page in range(1, MOST_PAGES + 1):
        await collection.spend_call(context, repo)
        url = client.path("pulls/{number}/commits{?per_page,page}")
        wanted = {"number": str(number), "per_page": str(PAGE), "page": str(page)}
        listed = await client.getitem(url, wanted)
        messages += [str(commit["commit"]["message"]) for commit in listed]
        if len(listed) < PAGE:
            break
    return messages
