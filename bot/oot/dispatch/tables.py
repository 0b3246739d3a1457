"""Tables of what is known of a commit before it is dispatched, its files and its tree; indexes of what waits."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.columns import partial_index
from bot.db.rows import Big, Bool, Json, Millis, Text, table
from bot.oot.results.tables import oot_dispatch

_DISPATCH = oot_dispatch.c
# literal: SQLite uses the partial index only for the same expression
WAITING = _DISPATCH.state == sa.literal_column("'waiting'")
partial_index("ix_oot_dispatch_waiting", _DISPATCH.backend_key, _DISPATCH.created_at, where=WAITING)
_BEGUN = _DISPATCH.dispatched_at.is_not(None)
partial_index("ix_oot_dispatch_begun", _DISPATCH.backend_key, _DISPATCH.dispatched_at, where=_BEGUN)


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
