"""What an unset option means on this database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.tables import ci_default
from bot.db.statements import Statement

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

DEFAULT = Statement(sa.select(ci_default.c.value).where(ci_default.c.name == sa.bindparam("of_name")))


async def stored_default(tx: Transaction, name: str) -> str | None:
    """Return what an unset option means, None where that is its usual default."""
    found: str | None = (await tx.run(DEFAULT, {"of_name": name})).scalar()
    return found
