"""A search for the commit that broke a backend at night, two rounds in; and one that is over."""

from __future__ import annotations

import sqlalchemy as sa

from bot.demo import trunk_history
from bot.oot.culprits import rows
from bot.oot.culprits.start import WantedSearch, start_search
from bot.oot.culprits.tables import bisect
from bot.oot.results.tables import oot_dispatch
from tests.harness import L3, UPSTREAM


async def tell(bot):
    """Begin a search and answer its first rounds; a second one has ended with the culprit."""
    waiting = sa.and_(oot_dispatch.c.backend_key == L3, oot_dispatch.c.heard_at.is_(None))
    async with bot.store.transaction() as tx:  # or the search would yield to them
        ids = list((await tx.run(sa.select(oot_dispatch.c.id).where(waiting))).scalars())
        await tx.run(sa.update(oot_dispatch).where(waiting).values(heard_at=tx.now))
        wanted = WantedSearch(
            repo=UPSTREAM,
            backend="npu",
            by="alice",
            reason="asked for in #12",
            what="Nightly / test (vector)",
        )
        started = await start_search(tx, bot.context.settings, wanted)
    lines = [row for row in await bot.rows("branch_commit") if row["title"].endswith(")")]
    shas = [row["sha"] for row in sorted(lines, key=lambda row: row["at"])]
    culprit = shas[trunk_history.BACKEND_BROKE]
    answered = 0
    for _ in range(2):
        await bot.settle(horizon=5)
        asked = [one for one in bot.github.dispatches if "bisect" in one.client_payload][answered:]
        answered += len(asked)
        for number, one in enumerate(asked):
            bad = shas.index(one.client_payload["payload"]["after"]) >= shas.index(culprit)
            for status in ("in_progress", "completed"):
                await bot.report(
                    one, status=status, conclusion="failure" if bad else "success", name=trunk_history.NIGHTLY,
                    job=trunk_history.NIGHTLY_JOB, run_id=f"search-{answered}-{number}",
                )  # fmt: skip
    await bot.settle(horizon=5)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(oot_dispatch).where(oot_dispatch.c.id.in_(ids)).values(heard_at=None))
        row = await rows.get_search(tx, started.row["id"])
        over = {
            **row, "id": "0123456789", "test": "TestMatmul.test_bf16", "state": "found", "confidence": "commit",
            "culprit_sha": culprit, "parent_sha": shas[trunk_history.BACKEND_BROKE - 1], "suspects": [culprit],
            "why": f"npu: TestMatmul.test_bf16 is broken by #170 ({culprit[:7]}, octocat): passed on its parent "
            f"{shas[trunk_history.BACKEND_BROKE - 1][:7]} in 1 run, failed here in 2.",
            "files": ["torch/csrc/matmul.cpp", "test/test_matmul.py"], "ended_at": row["created_at"] + 9_000_000,
            "good_runs": 1, "bad_runs": 2, "pr_number": 170, "author": "octocat",
        }  # fmt: skip
        await tx.run(sa.insert(bisect).values(**over))
