"""Dispatching: its tables, new dispatches, and what is recorded of pull requests that GitHub lists."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Json, Millis, Text, partial_index, select, table
from bot.ingest.record_rows import PullRow
from bot.ingest.tables import records
from bot.oot.results import dispatches
from bot.oot.results.tables import DispatchAnswers, DispatchBackend, DispatchEvent, DispatchRow, oot_dispatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry

_DISPATCH = oot_dispatch.c
# literal: SQLite uses the partial index only for the same expression
WAITING = _DISPATCH.state == sa.literal_column("'waiting'")
partial_index("ix_oot_dispatch_waiting", _DISPATCH.backend_key, _DISPATCH.created_at, where=WAITING)
_BEGUN = _DISPATCH.dispatched_at.is_not(None)
partial_index("ix_oot_dispatch_begun", _DISPATCH.backend_key, _DISPATCH.dispatched_at, where=_BEGUN)
NUMBERS_PER_QUERY = 200


class ChangedFilesRow(TypedDict):
    """The files a pull request changes on one head."""

    upstream_repo: Text
    pr_number: Big
    head_sha: Text
    base_ref: Text
    paths: Json[list[str]]
    complete: Bool | None  # whether these are all of them; null: whether they are this head's was not asked
    asked_at: Millis


oot_changed_files = table(
    "oot_changed_files",
    ChangedFilesRow,
    key=("upstream_repo", "pr_number", "head_sha"),
)


class TreeRow(TypedDict):
    """The tree of a commit that was dispatched: commits with the same one have the same files."""

    upstream_repo: Text
    head_sha: Text
    tree_sha: Text
    asked_at: Millis


oot_tree = table("oot_tree", TreeRow, key=("upstream_repo", "head_sha"))


class BackendColumns(DispatchBackend, DispatchAnswers):
    """The columns of a dispatch that describe its backend."""


def backend_columns(entry: Entry, event_type: str) -> BackendColumns:
    """Return the columns that describe the backend of a new dispatch of such an event."""
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
        "id": dispatches.dispatch_id(event["delivery_id"], backend["backend"]),
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
    """Return, by number, the records of these pull requests and of all that our records say are open."""
    pull = records["pull_request"].c
    of_repo = select(PullRow, records["pull_request"], body=sa.null()).where(
        sa.func.lower(pull.repo) == repo.lower()
    )
    pulls = await tx.fetch(of_repo.where(pull.state == "open"))
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        some = numbers[start : start + NUMBERS_PER_QUERY]
        pulls += await tx.fetch(of_repo.where(pull.number.in_(some)))
    newest_last = sorted(pulls, key=lambda row: row["received_at"])
    return {number: row for row in newest_last if (number := row["number"]) is not None}


async def dispatched_heads(
    tx: Transaction, repo: str, numbers: Sequence[int]
) -> dict[int, set[tuple[str, str | None]]]:
    """Return, by number, the dispatched heads of these pull requests, each with its base branch."""
    sent = oot_dispatch.c
    heads: dict[int, set[tuple[str, str | None]]] = {}
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        query = sa.select(sent.pr_number, sent.head_sha, sent.base_ref).distinct()
        query = query.where(
            sent.upstream_repo == repo,
            sent.pr_number.in_(numbers[start : start + NUMBERS_PER_QUERY]),
            sent.action != "closed",  # nor a push, which has none
        )
        for number, head_sha, base_ref in await tx.run(query):
            heads.setdefault(number, set()).add((head_sha, base_ref))
    return heads


async def superseded_unsent(tx: Transaction, repo: str, numbers: Sequence[int]) -> list[DispatchRow]:
    """Return dispatches of these pull requests that were superseded before sending, with nothing sent in their place.

    Those that a person dropped are left out: they have a reason.
    """
    mine, other = oot_dispatch.c, oot_dispatch.alias("other")
    same = ("upstream_repo", "pr_number", "head_sha", "base_ref", "backend_key", "event_type")
    newer = sa.tuple_(other.c.created_at, other.c.id) > sa.tuple_(mine.created_at, mine.id)
    counts = (other.c.state != "superseded") | other.c.dispatched_at.is_not(None)
    replaced = sa.exists().where(
        *(other.c[name] == mine[name] for name in same), other.c.id != mine.id, newer | counts
    )
    superseded: list[DispatchRow] = []
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
        superseded += await tx.fetch(query.order_by(mine.id))
    return superseded
