"""Rows of dispatching: new dispatches, and what is recorded of pull requests that GitHub lists."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.rows import PullRow
from bot.ingest.tables import records
from bot.oot.results.store import dispatches
from bot.oot.results.tables import (
    DispatchAnswers,
    DispatchBackend,
    DispatchEvent,
    DispatchRow,
    oot_dispatch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry

NUMBERS_PER_QUERY = 200


class BackendColumns(DispatchBackend, DispatchAnswers):
    """What a dispatch holds of its backend."""


def backend_columns(entry: Entry, event_type: str) -> BackendColumns:
    """Return what a new dispatch of such an event holds of its backend."""
    return {
        "backend": entry.repo,
        "backend_key": entry.key,
        "level": int(entry.level),
        "device": entry.device,
        "answers": None if entry.must_answer(event_type) else "some",
    }


def new_dispatch(
    tx: Transaction, event: DispatchEvent, backend: BackendColumns, *, state: str
) -> DispatchRow:
    """Return the row of a dispatch that has not been sent."""
    return {
        **event,
        **backend,
        "id": dispatches.identity(event["delivery_id"], backend["backend"]),
        "state": state,
        "attempts": 0,
        "created_at": tx.now,
        "dispatched_at": None,
        "heard_at": None,
        "token_jti": secrets.token_hex(16),
        "run_id": None,
        "error": None,
    }


async def recorded_pulls(tx: Transaction, repo: str, numbers: Sequence[int]) -> dict[int, PullRow]:
    """Return, by number, the records of these pull requests and of all that are open according to our records."""
    pull = records["pull_request"].c
    of_repo = select(PullRow, records["pull_request"], body=sa.null()).where(
        sa.func.lower(pull.repo) == repo.lower()
    )
    found = await tx.fetch(of_repo.where(pull.state == "open"))
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        some = numbers[start : start + NUMBERS_PER_QUERY]
        found += await tx.fetch(of_repo.where(pull.number.in_(some)))
    newest_last = sorted(found, key=lambda row: row["received_at"])
    return {number: row for row in newest_last if (number := row["number"]) is not None}


async def dispatched_heads(
    tx: Transaction, repo: str, numbers: Sequence[int]
) -> dict[int, set[tuple[str, str | None]]]:
    """Return, by number, which heads of these pull requests were dispatched for which base branch."""
    sent = oot_dispatch.c
    found: dict[int, set[tuple[str, str | None]]] = {}
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        query = sa.select(sent.pr_number, sent.head_sha, sent.base_ref).distinct()
        query = query.where(
            sent.upstream_repo == repo,
            sent.pr_number.in_(numbers[start : start + NUMBERS_PER_QUERY]),
            sent.action != "closed",  # nor a push, which has none
        )
        for number, head_sha, base_ref in await tx.run(query):
            found.setdefault(number, set()).add((head_sha, base_ref))
    return found


async def superseded_unsent(tx: Transaction, repo: str, numbers: Sequence[int]) -> list[DispatchRow]:
    """Return dispatches of these pull requests that were superseded unsent, where nothing else was sent in their place.

    Not what a person dropped: that has a reason.
    """
    mine, other = oot_dispatch.c, oot_dispatch.alias("other")
    same = ("upstream_repo", "pr_number", "head_sha", "base_ref", "backend_key", "event_type")
    newer = sa.tuple_(other.c.created_at, other.c.id) > sa.tuple_(mine.created_at, mine.id)
    counts = (other.c.state != "superseded") | other.c.dispatched_at.is_not(None)
    replaced = sa.exists().where(
        *(other.c[name] == mine[name] for name in same), other.c.id != mine.id, newer | counts
    )
    found: list[DispatchRow] = []
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        query = select(DispatchRow, oot_dispatch).where(
            mine.upstream_repo == repo,
            mine.pr_number.in_(numbers[start : start + NUMBERS_PER_QUERY]),
            mine.state == "superseded",
            mine.dispatched_at.is_(None),
            mine.error.is_(None),
            mine.action != "closed",
            ~replaced,
        )
        found += await tx.fetch(query.order_by(mine.id))
    return found
