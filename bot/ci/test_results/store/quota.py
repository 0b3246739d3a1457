"""How much runs that are not trusted may store in a day, by repository: anyone can open a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import QuotaRow, test_quota
from bot.db.rows import select

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

ROWS_A_DAY = 1_000_000
BYTES_A_DAY = 256 * 1024 * 1024
QUOTA = test_quota.c


async def take(tx: Transaction, repository_id: int, *, rows: int, size: int) -> bool:
    """Count rows and bytes of today; returns whether they are within the limits, otherwise nothing is counted."""
    today = tx.now // DAY
    mine = (QUOTA.repository_id == repository_id, QUOTA.day == today)
    await tx.run(
        tx.insert(test_quota)
        .values(repository_id=repository_id, day=today, stored=0, bytes=0)
        .on_conflict_do_nothing()
    )
    known = await tx.fetch_first(select(QuotaRow, test_quota).where(*mine).with_for_update())
    assert known
    stored, total = known["stored"] + rows, known["bytes"] + size
    if stored > ROWS_A_DAY or total > BYTES_A_DAY:
        return False
    await tx.run(sa.update(test_quota).where(*mine).values(stored=stored, bytes=total))
    return True
