"""Pull requests as our records know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ingest.rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction


MOST_HEADS = 1_000  # of one pull request


class LabelEventRow(TypedDict):
    """A label put on a pull request or taken off."""

    action: str | None
    label_name: str | None
    updated_at: int | None


class _HeadRow(TypedDict):
    head_sha: str
    updated_at: int | None


class _CandidateRow(TypedDict):
    head_sha: str
    number: int
    user_id: int | None


class _NameRow(TypedDict):
    repo: str
    number: int


async def get(tx: Transaction, repo: str, number: int) -> PullRow | None:
    """Return the pull request's record."""
    table = records["pull_request"]
    query = sa.select(table).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.number == number)
    return await tx.row_as(PullRow, query.order_by(table.c.received_at.desc()))


async def all_open(tx: Transaction) -> list[tuple[str, int]]:
    """Return the open pull requests we know of, in any repository, the newest first."""
    table = records["pull_request"]
    query = sa.select(table.c.repo, table.c.number).where(table.c.state == "open")
    rows = await tx.rows_as(_NameRow, query.order_by(table.c.number.desc()))
    return [(row["repo"], row["number"]) for row in rows]


async def heads(tx: Transaction, pull: PullRow) -> dict[str, int]:
    """Return when each head of a pull request was last reported, newest first (epoch milliseconds).

    Heads are found by the repository's id, so those of a renamed repository count too.
    """
    head = records["pull_head"].c
    query = sa.select(head.head_sha, head.updated_at).where(
        head.repository_id == pull["repository_id"], head.number == pull["number"]
    )
    query = query.order_by(head.updated_at.desc(), head.received_at.desc()).limit(MOST_HEADS)
    rows = await tx.rows_as(_HeadRow, query)
    return {row["head_sha"]: row["updated_at"] or 0 for row in rows}


async def label_events(tx: Transaction, repo: str, number: int) -> list[LabelEventRow]:
    """Return the newest label events of a pull request; GitHub's times are in seconds, so several may share one."""
    table = records["pull_label_event"]
    query = sa.select(
        table.c.action, table.c.label_name, table.c.pull_request_updated_at.label("updated_at")
    ).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.pull_request_number == number)
    return await tx.rows_as(LabelEventRow, query.order_by(table.c.pull_request_updated_at.desc()).limit(10))


async def deciders(tx: Transaction, repo: str, heads: Collection[str]) -> dict[str, list[int]]:
    """Return, by commit, the open pull requests with that head that decide its gate: a commit has one gate.

    The first is the one that had the commit first, not the one with the lowest number: anybody may push another's
    commit to an old pull request of theirs. The others have the same author, and may target other base branches.
    """
    pull, head = records["pull_request"].c, records["pull_head"].c
    same = (
        head.repository_id == pull.repository_id,
        head.number == pull.number,
        head.head_sha == pull.head_sha,
    )
    query = (
        sa.select(pull.head_sha, pull.number, pull.user_id)
        .outerjoin_from(records["pull_request"], records["pull_head"], sa.and_(*same))
        .where(
            pull.head_sha.in_(sorted(heads)), sa.func.lower(pull.repo) == repo.lower(), pull.state == "open"
        )
    )
    found: dict[str, list[_CandidateRow]] = {}
    for row in await tx.rows_as(_CandidateRow, query.order_by(head.received_at.nulls_last(), pull.number)):
        found.setdefault(row["head_sha"], []).append(row)
    return {
        sha: [row["number"] for row in rows if row["user_id"] == rows[0]["user_id"]]
        for sha, rows in found.items()
    }
