"""What logs do before every commit: keep private failures apart, and tell statistics why reported jobs failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.logs import failure_kind
from bot.ci.logs.store import private_failures

if TYPE_CHECKING:
    from bot.db.transaction import Changed, Transaction


async def before_commit(tx: Transaction, changed: Changed) -> None:
    """Follow what changed of repositories and reports."""
    await private_failures.follow_repositories(tx, changed)
    await failure_kind.follow_reports(tx, changed)
