"""Rows of what we wrote on pull requests, and the intents by which nothing is created twice at GitHub."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.errors import GitHubRefused, GitHubUnavailable, RetryLater
from bot.db.rows import select, unindexed
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import insert_into
from bot.oot.publish.tables import (
    DEMOTES,
    PULL,
    UNFINISHED,
    CheckRow,
    CommentRow,
    MentionRow,
    RefusalRow,
    oot_check,
    oot_comment,
    oot_comment_refusal,
    oot_mention,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction

INTENT_LASTS = 75_000  # milliseconds: the calls, and the time GitHub may still work on one that timed out
GITHUB_TIMEOUT = 10_000  # milliseconds after which GitHub ends any request
CALL_TIMEOUT = 45.0  # seconds for all calls that find or create one object
# put together once: every publishing asks these
_CHECK = oot_check.c
_REPO: sa.BindParameter[str] = sa.bindparam("of_repo")
_NUMBER: sa.BindParameter[int] = sa.bindparam("of_number")
_OF_PULL = (_CHECK.upstream_repo == _REPO, _CHECK.pr_number == _NUMBER)
_NAMED = (_CHECK.upstream_repo == _REPO, _CHECK.name == sa.bindparam("of_name"))
_BY_AGE = (_CHECK.created_at, _CHECK.external_id)
REFUSAL_OF = RowStatement(
    select(RefusalRow, oot_comment_refusal).where(oot_comment_refusal.c.upstream_repo == _REPO)
)
GATES_ON = RowStatement(
    select(CheckRow, oot_check)
    .where(
        _CHECK.head_sha.in_(sa.bindparam("heads", expanding=True)),
        unindexed(_CHECK.upstream_repo) == _REPO,
        unindexed(_CHECK.name) == sa.bindparam("of_name"),
    )
    .order_by(*_BY_AGE)
)
CHECKS_OF = RowStatement(select(CheckRow, oot_check).where(*_OF_PULL).order_by(*_BY_AGE))
UNFINISHED_HEADS = Statement(
    sa.select(_CHECK.head_sha).where(*_OF_PULL, _CHECK.status != "completed").distinct()
)
ANY_NAMED = Statement(sa.select(_CHECK.external_id).where(*_NAMED).limit(1))
WRITTEN = Statement(sa.update(oot_check).where(_CHECK.external_id == sa.bindparam("of_id")))
MENTIONED = RowStatement(
    select(MentionRow, oot_mention).where(
        oot_mention.c.upstream_repo == _REPO,
        oot_mention.c.pr_number == _NUMBER,
        oot_mention.c.head_sha == sa.bindparam("of_head"),
    )
)
GET_COMMENT = RowStatement(
    select(CommentRow, oot_comment).where(
        oot_comment.c.upstream_repo == _REPO, oot_comment.c.pr_number == _NUMBER
    )
)
DEMOTION_BRANCH = "crcr-demotion/"


@dataclass(frozen=True, kw_only=True)
class Intent:
    """The right of this process alone to create an object now."""

    table: sa.Table
    key: tuple[Any, ...]
    until: int  # epoch milliseconds; identifies this intent among later ones
    fresh: bool  # the first intent for this object: there is nothing to look for
    lost_until: int = 0  # epoch milliseconds: until then GitHub may still be executing an unanswered request


@dataclass(kw_only=True)
class Creation:
    """One attempt to create an object."""

    intent: Intent
    now: int  # epoch milliseconds
    requested: bool = False  # the request was sent to GitHub

    @property
    def fresh(self) -> bool:
        """Whether this is the first attempt, with nothing to look for."""
        return self.intent.fresh

    async def create(self, request: Callable[[], Awaitable[int]]) -> int:
        """Create it; raises RetryLater while GitHub may still be executing an earlier request without an answer."""
        if self.intent.lost_until > self.now:
            wait = (self.intent.lost_until - self.now) / 1000
            raise RetryLater("GitHub may still be executing an earlier request", after=wait)
        self.requested = True
        return await request()


async def begin_intent(tx: Transaction, table: sa.Table, row: Mapping[str, object]) -> Intent:
    """Record that an object is about to be created; raises RetryLater while another process may be creating it."""
    key = tuple(row[column.name] for column in table.primary_key)
    until = tx.now + INTENT_LASTS
    values = {**row, "writing_until": until, "lost_until": 0}
    if (await tx.run(_insert(table, sqlite=tx.sqlite), values)).rowcount:
        return Intent(table=table, key=key, until=until, fresh=True)
    lost_until = (await tx.run(_take(table), _named(table, key) | {"until": until, "now": tx.now})).scalar()
    if lost_until is None:
        holder = sa.select(table.c.writing_until).where(*_of_key(table))
        held = (await tx.run(holder, _named(table, key))).scalar_one()
        raise RetryLater(f"another process is making {' '.join(map(str, key))}", after=(held - tx.now) / 1000)
    return Intent(table=table, key=key, until=until, fresh=False, lost_until=lost_until)


async def lose_all_intents(tx: Transaction, tables: Sequence[sa.Table] = (oot_check, oot_comment)) -> None:
    """Record that every call in progress will stay unanswered; for the start of the only process."""
    for table in tables:
        lost = {"writing_until": 0, "lost_until": tx.now + GITHUB_TIMEOUT}
        await tx.run(sa.update(table).where(table.c.writing_until > tx.now).values(lost))


async def end_intent(tx: Transaction, intent: Intent) -> None:
    """Record that a call is over, whatever its outcome; another process's later intent stays."""
    await tx.run(_change(intent.table), _mine(intent) | {"writing_until": 0})


async def lose_intent(tx: Transaction, intent: Intent) -> None:
    """Record that a call will stay unanswered although GitHub may still be executing it."""
    lost = {"writing_until": 0, "lost_until": tx.now + GITHUB_TIMEOUT}
    await tx.run(_change(intent.table), _mine(intent) | lost)


@contextlib.asynccontextmanager
async def create_once(
    context: Context, begin: Callable[[Transaction], Awaitable[Intent]]
) -> AsyncIterator[Creation]:
    """Let the block look for an object and create it while no other process does; `begin` records the intent.

    Raises RetryLater while another process may be creating it, and on a timeout. On cancellation the intent stays:
    GitHub may still be executing the request.
    """
    async with context.store.transaction() as tx:
        intent = await begin(tx)
        creation = Creation(intent=intent, now=tx.now)
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            yield creation
    except TimeoutError as error:
        raise RetryLater(f"GitHub did not answer within {CALL_TIMEOUT:.0f} s") from error
    except (GitHubRefused, RetryLater) as error:
        lost = creation.requested and isinstance(error, GitHubUnavailable)
        async with context.store.transaction() as tx:
            await (lose_intent if lost else end_intent)(tx, intent)
        raise
    async with context.store.transaction() as tx:
        await end_intent(tx, intent)


async def gates_on(tx: Transaction, repo: str, heads: Collection[str], name: str) -> list[CheckRow]:
    """Return our gates on these commits, whichever pull request they were made for; oldest first."""
    which = {"heads": sorted(heads), "of_repo": repo, "of_name": name}
    return await tx.fetch(GATES_ON, which)


async def checks_of(tx: Transaction, repo: str, number: int) -> list[CheckRow]:
    """Return the check runs we made, or meant to make, on a pull request; oldest first."""
    return await tx.fetch(CHECKS_OF, {"of_repo": repo, "of_number": number})


async def unfinished_heads(tx: Transaction, repo: str, number: int) -> set[str]:
    """Return the heads of a pull request that have an unfinished check run of ours."""
    return set((await tx.run(UNFINISHED_HEADS, {"of_repo": repo, "of_number": number})).scalars())


async def check_by_id(tx: Transaction, check_run_id: int) -> CheckRow | None:
    """Return one of our check runs by GitHub's id."""
    return await tx.fetch_first(select(CheckRow, oot_check).where(oot_check.c.check_run_id == check_run_id))


async def recorded_ids(tx: Transaction, check_run_ids: Collection[int]) -> set[int]:
    """Return which of GitHub's ids belong to check runs that we know."""
    if not check_run_ids:
        return set()
    known = sa.select(oot_check.c.check_run_id).where(oot_check.c.check_run_id.in_(sorted(check_run_ids)))
    return set((await tx.run(known)).scalars())


async def gate_exists(tx: Transaction, repo: str, name: str) -> bool:
    """Return whether a gate was ever published on a repository."""
    return await tx.row(ANY_NAMED, {"of_repo": repo, "of_name": name}) is not None


async def unfinished_named(tx: Transaction, name: str, *, before: int, limit: int) -> list[CheckRow]:
    """Return our unfinished check runs of a name begun before a time, newest first."""
    query = select(CheckRow, oot_check).where(UNFINISHED, _CHECK.name == name, _CHECK.created_at < before)
    return await tx.fetch(query.order_by(_CHECK.created_at.desc()).limit(limit))


async def intend_check(tx: Transaction, row: Mapping[str, object]) -> Intent:
    """Record that a check run is about to be made; raises RetryLater while another process may be making it."""
    blank = {"status": "intended", "conclusion": None, "label_ended": False, "check_run_id": None}
    values = {**row, **blank, "digest": "", "created_at": tx.now, "written_at": 0}
    return await begin_intent(tx, oot_check, values)


async def record_check(tx: Transaction, external_id: str, **values: Any) -> None:
    """Record what was written to a check run."""
    await tx.run(WRITTEN, {"of_id": external_id, **values, "written_at": tx.now})


async def force_rewrite(tx: Transaction, repo: str, head_sha: str, name: str) -> None:
    """Force a rewrite of a commit's check run even if nothing on it has changed."""
    change = sa.update(oot_check).where(
        oot_check.c.head_sha == head_sha, oot_check.c.upstream_repo == repo, oot_check.c.name == name
    )
    await tx.run(change.values(digest="", written_at=0))


async def get_comment(tx: Transaction, repo: str, number: int) -> CommentRow | None:
    """Return our comment on a pull request."""
    return await tx.fetch_first(GET_COMMENT, {"of_repo": repo, "of_number": number})


async def intend_comment(tx: Transaction, repo: str, number: int) -> Intent:
    """Record that the comment is about to be made; raises RetryLater while another process may be making it."""
    values = {"upstream_repo": repo, "pr_number": number, "digest": "", "written_at": 0}
    return await begin_intent(tx, oot_comment, values)


async def record_comment(
    tx: Transaction, repo: str, number: int, *, comment_id: int | None, digest: str
) -> None:
    """Record what was written to the comment."""
    match = (oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number)
    values = {"comment_id": comment_id, "digest": digest, "written_at": tx.now}
    await tx.run(sa.update(oot_comment).where(*match).values(values))


async def comment_refusals(tx: Transaction) -> list[RefusalRow]:
    """Return the repositories where the App may not comment."""
    return await tx.fetch(
        select(RefusalRow, oot_comment_refusal).order_by(oot_comment_refusal.c.upstream_repo)
    )


async def comment_refusal(tx: Transaction, repo: str) -> RefusalRow | None:
    """Return why the App may not comment in a repository, None if it may."""
    return await tx.fetch_first(REFUSAL_OF, {"of_repo": repo})


async def refuse_comments(tx: Transaction, repo: str, reason: str) -> None:
    """Record that the App may not comment in a repository."""
    values = {"reason": reason, "refused_at": tx.now}
    insert = tx.insert(oot_comment_refusal).values(upstream_repo=repo, **values)
    await tx.run(insert.on_conflict_do_update(index_elements=["upstream_repo"], set_=values))


async def allow_comments(tx: Transaction, *, repo: str = "", account: str = "") -> None:
    """Forget that the App could not comment in a repository, or in any of an account's (case folded)."""
    refused = oot_comment_refusal.c.upstream_repo
    which = sa.func.lower(refused).startswith(f"{account}/", autoescape=True) if account else refused == repo
    await tx.run(sa.delete(oot_comment_refusal).where(which))


async def read_mentions(tx: Transaction, repo: str, number: int, head_sha: str) -> dict[str, bool]:
    """Return the backends whose on-calls were mentioned on a head, each with whether the mention is over."""
    of_head = {"of_repo": repo, "of_number": number, "of_head": head_sha}
    return {row["backend_key"]: row["over"] for row in await tx.fetch(MENTIONED, of_head)}


async def record_mentions(
    tx: Transaction, repo: str, number: int, head_sha: str, backends: Sequence[str], *, new_comment: bool
) -> None:
    """Record the backends whose on-calls the comment mentions now; a mention is never repeated once it is over.

    A new comment ends every mention of the one it replaces.
    """
    of_pull = sa.update(oot_mention).where(*_mentioned(repo, number))
    gone = of_pull if new_comment else of_pull.where(oot_mention.c.backend_key.not_in(backends))
    await tx.run(gone.values(over=True))
    for key in backends:
        values = {
            "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "backend_key": key,
            "over": False, "created_at": tx.now,
        }  # fmt: skip
        await tx.run(tx.insert(oot_mention).values(values).on_conflict_do_nothing())


async def read_demoting_pulls(tx: Transaction, upstream: str) -> dict[str, int]:
    """Return the number of the pull request that demotes each backend (case folded).

    Whoever may push to upstream may demote: the branch of a fork, which anyone can have, is of another repository.
    """
    query = sa.select(PULL.head_ref, PULL.number).where(
        DEMOTES, sa.func.lower(PULL.repo) == upstream.lower(), PULL.head_repo_id == PULL.repository_id
    )
    demoting = await tx.run(query.order_by(PULL.number.desc()))
    return {ref.removeprefix(DEMOTION_BRANCH).casefold(): number for ref, number in demoting}


@functools.cache
def _insert(table: sa.Table, *, sqlite: bool) -> Statement:
    """Return the cached statement that adds a row unless it exists: building it takes longer than running it."""
    return Statement(insert_into(table, sqlite=sqlite).on_conflict_do_nothing())


@functools.cache
def _change(table: sa.Table) -> Statement:
    """Return the statement that changes an intent's row, named by `_mine`, and the given columns."""
    return Statement(
        sa.update(table).where(*_of_key(table), table.c.writing_until == sa.bindparam("of_until"))
    )


@functools.cache
def _take(table: sa.Table) -> Statement:
    """Return the statement that records an intent in the row named by `_named`, unless a process holds it at `now`."""
    free = table.c.writing_until <= sa.bindparam("now")
    taken = sa.update(table).where(*_of_key(table), free).values(writing_until=sa.bindparam("until"))
    return Statement(taken.returning(table.c.lost_until))


def _of_key(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    return [column == sa.bindparam(f"of_{column.name}") for column in table.primary_key]


def _mine(intent: Intent) -> dict[str, Any]:
    return _named(intent.table, intent.key) | {"of_until": intent.until}


def _named(table: sa.Table, key: tuple[Any, ...]) -> dict[str, Any]:
    return {f"of_{column.name}": value for column, value in zip(table.primary_key, key, strict=True)}


def _mentioned(repo: str, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return oot_mention.c.upstream_repo == repo, oot_mention.c.pr_number == number
