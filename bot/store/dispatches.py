"""Which backends were told about what? Reads and writes of oot_dispatch and oot_rerun."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import oot_dispatch, oot_rerun, oot_workflow_job

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]


def identity(delivery_id: str, backend: str) -> str:
    """Return our own key of the dispatch of one delivery to one backend."""
    return hashlib.sha256(f"{delivery_id}\n{backend.casefold()}".encode()).hexdigest()[:32]


async def add(tx: Transaction, row: Row) -> bool:
    """Record a dispatch before it is sent; returns False when it was recorded already."""
    done = await tx.run(tx.insert(oot_dispatch).values(row).on_conflict_do_nothing())
    return bool(done.rowcount)


async def get(tx: Transaction, identifier: str) -> Row | None:
    """Return one dispatch by our own key."""
    return await tx.row(sa.select(oot_dispatch).where(oot_dispatch.c.id == identifier))


async def find(tx: Transaction, *, delivery_id: str, backend: str) -> Row | None:
    """Return the dispatch of a delivery to a backend."""
    return await get(tx, identity(delivery_id, backend))


async def of_pull(tx: Transaction, repo: str, number: int) -> list[Row]:
    """Return every dispatch of a pull request that asks for a verdict, oldest first."""
    query = sa.select(oot_dispatch).where(
        oot_dispatch.c.upstream_repo == repo,
        oot_dispatch.c.pr_number == number,
        oot_dispatch.c.action != "closed",
    )
    return await tx.rows(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id))


async def on_head(tx: Transaction, repo: str, head_sha: str) -> list[Row]:
    """Return every dispatch of a head that asks for a verdict, oldest first."""
    query = sa.select(oot_dispatch).where(
        oot_dispatch.c.head_sha == head_sha,
        oot_dispatch.c.upstream_repo == repo,
        oot_dispatch.c.action != "closed",
    )
    return await tx.rows(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id))


async def change(tx: Transaction, identifier: str, **values: Any) -> None:
    """Set columns of one dispatch."""
    await tx.run(sa.update(oot_dispatch).where(oot_dispatch.c.id == identifier).values(values))


async def supersede_pending(tx: Transaction, repo: str, number: int, *, but_head: str | None) -> None:
    """Drop what was not sent yet for other heads of a pull request; `but_head` None: for every head."""
    change_of = sa.update(oot_dispatch).where(
        oot_dispatch.c.upstream_repo == repo,
        oot_dispatch.c.pr_number == number,
        oot_dispatch.c.state == "pending",
        oot_dispatch.c.action != "closed",
    )
    if but_head is not None:
        change_of = change_of.where(oot_dispatch.c.head_sha != but_head)
    await tx.run(change_of.values(state="superseded"))


async def others_since(tx: Transaction, dispatch: Row, since: int) -> int:
    """Return how many other dispatches went to the same backend since a time (epoch milliseconds)."""
    query = sa.select(sa.func.count()).where(
        oot_dispatch.c.backend_key == dispatch["backend_key"],
        oot_dispatch.c.id != dispatch["id"],
        oot_dispatch.c.dispatched_at >= since,
    )
    return int((await tx.run(query)).scalar() or 0)


async def silent(tx: Transaction, *, before: int) -> list[Row]:
    """Return dispatches recorded before a time that nobody has reported on; L1 never reports."""
    heard = sa.exists().where(oot_workflow_job.c.dispatch_id == oot_dispatch.c.id)
    query = sa.select(oot_dispatch).where(
        oot_dispatch.c.state.in_(("sent", "pending")),
        oot_dispatch.c.created_at < before,
        oot_dispatch.c.level > 1,
        oot_dispatch.c.action != "closed",
        ~heard,
    )
    return await tx.rows(query.limit(500))


async def ask_rerun(tx: Transaction, row: Row) -> bool:
    """Record the wish to run a run again; returns False when that very attempt was asked for already."""
    values = {**row, "state": "asked", "created_at": tx.now}
    done = await tx.run(tx.insert(oot_rerun).values(values).on_conflict_do_nothing())
    return bool(done.rowcount)


async def reruns_of(tx: Transaction, dispatch_ids: list[str]) -> list[Row]:
    """Return the re-runs asked for of these dispatches."""
    return await tx.rows(sa.select(oot_rerun).where(oot_rerun.c.dispatch_id.in_(dispatch_ids)))


async def settle_rerun(tx: Transaction, row: Row, state: str) -> None:
    """Mark a re-run sent or impossible."""
    matches = [oot_rerun.c[name] == row[name] for name in ("dispatch_id", "run_id", "from_attempt")]
    await tx.run(sa.update(oot_rerun).where(*matches).values(state=state))
