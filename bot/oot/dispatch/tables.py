"""Tables of what is known of a commit before it is dispatched: the files it changes, its tree."""

from __future__ import annotations

from typing import TypedDict

from bot.db.rows import Big, Bool, Json, Millis, Text, table


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
