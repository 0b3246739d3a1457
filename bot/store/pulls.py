"""What do we know of a pull request, and what did we write on it? Reads of records; oot_check and oot_comment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import oot_check, oot_comment, records

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]


async def get(tx: Transaction, repo: str, number: int) -> Row | None:
    """Return the pull request's record."""
    table = records["pull_request"]
    query = sa.select(table).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.number == number)
    return await tx.row(query.order_by(table.c.received_at.desc()))


async def checks_of(tx: Transaction, repo: str, number: int) -> list[Row]:
    """Return the check runs we made, or meant to make, on a pull request; oldest first."""
    query = sa.select(oot_check).where(oot_check.c.upstream_repo == repo, oot_check.c.pr_number == number)
    return await tx.rows(query.order_by(oot_check.c.created_at, oot_check.c.external_id))


async def check_by_id(tx: Transaction, check_run_id: int) -> Row | None:
    """Return what we know of one of our check runs."""
    return await tx.row(sa.select(oot_check).where(oot_check.c.check_run_id == check_run_id))


async def gate_exists(tx: Transaction, repo: str, name: str) -> bool:
    """Return whether a gate was ever published on a repository."""
    query = sa.select(oot_check.c.external_id).where(
        oot_check.c.upstream_repo == repo, oot_check.c.name == name
    )
    return await tx.row(query.limit(1)) is not None


async def intend_check(tx: Transaction, row: Row) -> bool:
    """Record that a check run is about to be made; returns False when that was recorded before."""
    values = {**row, "check_run_id": None, "digest": "", "created_at": tx.now, "written_at": 0}
    done = await tx.run(tx.insert(oot_check).values(values).on_conflict_do_nothing())
    return bool(done.rowcount)


async def wrote_check(tx: Transaction, external_id: str, **values: Any) -> None:
    """Record what was written to a check run."""
    change = sa.update(oot_check).where(oot_check.c.external_id == external_id)
    await tx.run(change.values(values | {"written_at": tx.now}))


async def comment(tx: Transaction, repo: str, number: int) -> Row | None:
    """Return what we know of our comment on a pull request."""
    query = sa.select(oot_comment).where(
        oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number
    )
    return await tx.row(query)


async def intend_comment(tx: Transaction, repo: str, number: int) -> None:
    """Record that the comment is about to be made."""
    values = {"upstream_repo": repo, "pr_number": number, "digest": "", "written_at": 0}
    await tx.run(tx.insert(oot_comment).values(values).on_conflict_do_nothing())


async def wrote_comment(tx: Transaction, repo: str, number: int, **values: Any) -> None:
    """Record what was written to the comment."""
    match = (oot_comment.c.upstream_repo == repo, oot_comment.c.pr_number == number)
    await tx.run(sa.update(oot_comment).where(*match).values(values | {"written_at": tx.now}))
