"""Stored cells of commits: taken away in the transaction that changes one of their jobs, made again by a task."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk import commit_cells, same_names
from bot.ci.trunk.store import rows
from bot.ci.trunk.tables import ci_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.store import Store
    from bot.db.transaction import Transaction

STORED = ci_commit.c
AT_ONCE = 10  # commits: their runs are looked at without a pause


async def forget(tx: Transaction, commits: Iterable[tuple[int, str]]) -> None:
    """Take away the cells of some commits, by repository and SHA, under a new random mark each."""
    found = [
        {"repository_id": repository, "head_sha": sha, "mark": secrets.randbits(62), "cells": None}
        for repository, sha in sorted(set(commits))
    ]
    if found:
        await tx.upsert(ci_commit, found, replaced=("mark", "cells"))


async def make_cells(store: Store, repository_id: int, shas: Sequence[str]) -> None:
    """Store the cells of those commits that lack them; not where something changes meanwhile."""
    async with store.read() as tx:
        known = await rows.stored_cells(tx, repository_id, shas)
    lacking = sorted(sha for sha, row in known.items() if row.cells is None)
    for start in range(0, len(lacking), AT_ONCE):
        await _make(store, repository_id, lacking[start : start + AT_ONCE])


async def _make(store: Store, repository_id: int, shas: Sequence[str]) -> None:
    async with store.read() as tx:
        known = await rows.stored_cells(tx, repository_id, shas)
        about = same_names.describe_runs(await rows.runs(tx, repository_id, shas))
        runs = await rows.cells(tx, repository_id, shas)
    made = await asyncio.to_thread(commit_cells.make_cells, runs, about)
    async with store.transaction() as tx:
        for sha, row in sorted(known.items()):
            same = (STORED.repository_id == repository_id, STORED.head_sha == sha, STORED.mark == row.mark)
            cells = made.get(sha, {})
            values = {
                "cells": commit_cells.to_bytes(cells),
                "outline": commit_cells.outline_to_bytes(cells, row.mark),
            }
            await tx.run(sa.update(ci_commit).where(*same).values(values))
