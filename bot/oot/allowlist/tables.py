"""Versions of the allowlist, and since when each backend stands at its level."""

from __future__ import annotations

from typing import TypedDict

from bot.db.rows import Big, Bool, Int, Millis, Text, table


class VersionRow(TypedDict):
    """One version of the allowlist, as read."""

    id: Big
    digest: Text
    source: Text
    content: Text
    valid: Bool
    error: Text | None
    loaded_at: Millis
    default_events: Text | None  # of entries that name none, when it was read; null: pull_request


allowlist_version = table("allowlist_version", VersionRow, key=("id",))


class LevelRow(TypedDict):
    """Since when a backend stands at a level."""

    backend_key: Text
    since: Big
    level: Int  # 0: not on the allowlist any more


oot_level = table("oot_level", LevelRow, key=("backend_key", "since"))
