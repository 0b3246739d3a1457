"""Rows of what we wrote on pull requests: reads and writes of check runs, comments and mentions.

Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.columns import unindexed
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.oot.publish import intent_rows
from bot.oot.publish.tables import (
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
    from collections.abc import Collection, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.publish.intent_rows import Intent


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


async def recorded(tx: Transaction, check_run_ids: Collection[int]) -> set[int]:
    """Return those of GitHub's ids whose check runs we know."""
    if not check_run_ids:
        return set()
    known = sa.select(oot_check.c.check_run_id).where(oot_check.c.check_run_id.in_(sorted(check_run_ids)))
    return set((await tx.run(known)).scalars())


async def gate_exists(tx: Transaction, repo: str, name: str) -> bool:
    """Return whether a gate was ever published on a repository."""
    return await tx.row(ANY_NAMED, {"of_repo": repo, "of_name": name}) is not None


async def unfinished_named(tx: Transaction, name: str, *, before: int, limit: int) -> list[CheckRow]:
    """Return our unfinished check runs of one name that were begun before a time, the newest first."""
    query = select(CheckRow, oot_check).where(UNFINISHED, _CHECK.name == name, _CHECK.created_at < before)
    return await tx.fetch(query.order_by(_CHECK.created_at.desc()).limit(limit))


async def intend_check(tx: Transaction, row: Mapping[str, object]) -> Intent:
    """Record that a check run is about to be made; raises RetryLater while another process may be making it."""
    blank = {"status": "intended", "conclusion": None, "label_ended": False, "check_run_id": None}
    values = {**row, **blank, "digest": "", "created_at": tx.now, "written_at": 0}
    return await intent_rows.begin_intent(tx, oot_check, values)


async def record_check(tx: Transaction, external_id: str, **values: Any) -> None:
    """Record what was written to a check run."""
    await tx.run(WRITTEN, {"of_id": external_id, **values, "written_at": tx.now})


async def force_rewrite(tx: Transaction, repo: str, head_sha: str, name: str) -> None:
    """Have a commit's check run written again even if nothing on it has changed."""
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
    return await intent_rows.begin_intent(tx, oot_comment, values)


async def record_comment(
    tx: Transaction, repo: str, number: int, *, comment_id: int | None, digest: str
) -> None:
    """Record what was written to the comment."""
    match = (oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number)
    values = {"comment_id": comment_id, "digest": digest, "written_at": tx.now}
    await tx.run(sa.update(oot_comment).where(*match).values(values))


async def comment_refusals(tx: Transaction) -> list[RefusalRow]:
    """Return the repositories where the App may write no comment."""
    return await tx.fetch(
        select(RefusalRow, oot_comment_refusal).order_by(oot_comment_refusal.c.upstream_repo)
    )


async def comment_refusal(tx: Transaction, repo: str) -> RefusalRow | None:
    """Return why the App may write no comment in a repository, None where nothing says so."""
    return await tx.fetch_first(REFUSAL_OF, {"of_repo": repo})


async def refuse_comments(tx: Transaction, repo: str, reason: str) -> None:
    """Record that the App may write no comment in a repository."""
    values = {"reason": reason, "refused_at": tx.now}
    insert = tx.insert(oot_comment_refusal).values(upstream_repo=repo, **values)
    await tx.run(insert.on_conflict_do_update(index_elements=["upstream_repo"], set_=values))


async def allow_comments(tx: Transaction, *, repo: str = "", account: str = "") -> None:
    """Forget that the App might write no comment in a repository, or in any of an account (case folded)."""
    refused = oot_comment_refusal.c.upstream_repo
    which = sa.func.lower(refused).startswith(f"{account}/", autoescape=True) if account else refused == repo
    await tx.run(sa.delete(oot_comment_refusal).where(which))


async def mentions(tx: Transaction, repo: str, number: int, head_sha: str) -> dict[str, bool]:
    """Return the backends whose on-calls were mentioned on a head; true where the mention is over."""
    of_head = {"of_repo": repo, "of_number": number, "of_head": head_sha}
    return {row["backend_key"]: row["over"] for row in await tx.fetch(MENTIONED, of_head)}


async def record_mentions(
    tx: Transaction, repo: str, number: int, head_sha: str, backends: Sequence[str], *, new_comment: bool
) -> None:
    """Record the backends whose on-calls the comment mentions now: no mention is repeated once it is over.

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


def _mentioned(repo: str, number: int) -> tuple[sa.ColumnElement[bool], ...]:
    return oot_mention.c.upstream_repo == repo, oot_mention.c.pr_number == number
