"""What is open or running as far as we know, and what was relayed of it? What reconcile compares GitHub with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.records import TYPES
from bot.store.rollup_tables import oot_level
from bot.store.tables import oot_dispatch, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
NUMBERS_PER_QUERY = 200


async def pulls(tx: Transaction, repo: str, numbers: Sequence[int]) -> dict[int, Row]:
    """Return, by number, what is recorded of pull requests: of those named, and of all that are open here."""
    pull = records["pull_request"].c
    columns = (
        pull.repository_id, pull.number, pull.state, pull.head_sha, pull.base_ref, pull.title, pull.draft, pull.labels,
        pull.updated_at, pull.received_at,
    )  # fmt: skip
    ours = sa.select(*columns).where(sa.func.lower(pull.repo) == repo.lower())
    rows = await tx.rows(ours.where(pull.state == "open"))
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        rows += await tx.rows(ours.where(pull.number.in_(numbers[start : start + NUMBERS_PER_QUERY])))
    return {row["number"]: row for row in sorted(rows, key=lambda row: row["received_at"])}


async def dispatched(
    tx: Transaction, repo: str, numbers: Sequence[int]
) -> dict[int, set[tuple[str, str | None]]]:
    """Return which heads of these pull requests were relayed, and for which base branch, by number."""
    sent = oot_dispatch.c
    found: dict[int, set[tuple[str, str | None]]] = {}
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        query = sa.select(sent.pr_number, sent.head_sha, sent.base_ref).distinct()
        query = query.where(
            sent.upstream_repo == repo,
            sent.pr_number.in_(numbers[start : start + NUMBERS_PER_QUERY]),
            sent.action != "closed",
        )
        for row in await tx.rows(query):
            found.setdefault(row["pr_number"], set()).add((row["head_sha"], row["base_ref"]))
    return found


async def dropped(tx: Transaction, repo: str, numbers: Sequence[int]) -> list[Row]:
    """Return dispatches of these pull requests that were dropped unsent, and that head and base's backends never told.

    Not what somebody dropped on purpose, which has a reason.
    """
    mine, other = oot_dispatch.c, oot_dispatch.alias("other")
    same = ("upstream_repo", "pr_number", "head_sha", "base_ref", "backend_key")
    newer = sa.tuple_(other.c.created_at, other.c.id) > sa.tuple_(mine.created_at, mine.id)
    told = (other.c.state != "superseded") | other.c.dispatched_at.is_not(None)
    taken_up = sa.exists().where(
        *(other.c[name] == mine[name] for name in same), other.c.id != mine.id, newer | told
    )
    found: list[Row] = []
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        query = sa.select(oot_dispatch).where(
            mine.upstream_repo == repo,
            mine.pr_number.in_(numbers[start : start + NUMBERS_PER_QUERY]),
            mine.state == "superseded",
            mine.dispatched_at.is_(None),
            mine.error.is_(None),
            mine.action != "closed",
            ~taken_up,
        )
        found += await tx.rows(query.order_by(mine.id))
    return found


async def in_flight(
    tx: Transaction,
    table: str,
    *,
    upstreams: Sequence[str],
    first_heard: tuple[int, int],
    limit: int,
    app_id: int | None = None,
) -> list[Row]:
    """Return records that are not completed, first heard of in a span of time; of one App's where it is given.

    Only of upstreams and of backends that are or were listed: nothing strangers send makes us ask. Any of them, so
    that those GitHub has no news of do not keep the others from being asked about.
    """
    columns = records[table].c
    ours = sa.func.lower(columns.repo).in_([repo.lower() for repo in upstreams])
    listed = sa.func.lower(columns.repo).in_(sa.select(oot_level.c.backend_key))
    query = sa.select(records[table]).where(
        columns.status != "completed",
        columns.received_at >= first_heard[0],
        columns.received_at < first_heard[1],
        columns.deleted_at.is_(None),
        ours | listed,
    )
    if app_id is not None:
        query = query.where(columns.app_id == app_id)
    return await tx.rows(query.order_by(sa.func.random()).limit(limit))


async def known_runs(tx: Transaction, ids: Sequence[int]) -> set[tuple[int, int]]:
    """Return (id, run_attempt) of the workflow runs recorded among some ids."""
    columns = records["workflow_run"].c
    rows = await tx.rows(sa.select(columns.id, columns.run_attempt).where(columns.id.in_(ids)))
    return {(row["id"], row["run_attempt"]) for row in rows}


async def gone(tx: Transaction, table: str, row: Row) -> None:
    """Note that GitHub does not know a record's object any more: it is not asked about again."""
    columns = records[table].c
    same = [columns[name] == row[name] for name in ("repository_id", *TYPES[table].key)]
    await tx.run(sa.update(records[table]).where(*same).values(deleted_at=tx.now))
