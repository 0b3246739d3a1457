"""Deleting what dispatching no longer needs: old pings, lists of changed files, trees of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ingest.prune import delete_rows
from bot.oot.dispatch.ping import prune_pings
from bot.oot.dispatch.tables import oot_changed_files, oot_tree

if TYPE_CHECKING:
    from bot.context import Context

KEPT = 90 * 86_400_000  # milliseconds: then a head that still stands is run, whatever it changes


async def prune(context: Context) -> dict[str, int]:
    """Delete what is old."""
    before = context.clock.now() - KEPT
    files, trees = oot_changed_files.c.asked_at < before, oot_tree.c.asked_at < before
    return {
        **await prune_pings(context),
        "changed_files": await delete_rows(context, oot_changed_files, files),
        "trees": await delete_rows(context, oot_tree, trees),
    }
