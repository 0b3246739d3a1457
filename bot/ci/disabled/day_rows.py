"""Statements on what was disabled, day by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.disabled.tables import DisabledDayRow, ci_disabled_day
from bot.db.rows import select
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.ci.disabled.lists import Tests
    from bot.db.transaction import Transaction

C = ci_disabled_day.c


async def note_day(tx: Transaction, repository_id: int, tests: Tests) -> None:
    """Store the tests that are disabled now as those of today; a day without any has no row."""
    today = tx.now // DAY
    listed = [[name, int(number), list(platforms)] for name, (number, _, platforms) in sorted(tests.items())]
    mine = (C.repository_id == repository_id, C.day == today)
    before = await tx.fetch_first(select(DisabledDayRow, ci_disabled_day).where(*mine))
    if listed == ([list(one) for one in before["tests"]] if before else []):
        return
    row = {"repository_id": repository_id, "day": today, "tests": listed, "made_at": tx.now}
    await tx.upsert(ci_disabled_day, [row], replaced=["tests", "made_at"])
    tx.note_changed("ci_disabled_day", [row])


async def delete_before(tx: Transaction, day: int) -> int:
    """Delete days before one; returns how many."""
    return int((await tx.run(sa.delete(ci_disabled_day).where(C.day < day))).rowcount)
