"""What the administrator sees of failures, and does about them: how many are explained, and their issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.ci.logs.store import failure_rows
from bot.core import escaping, metrics
from bot.db.store import LOCK_TIMEOUT
from bot.web.app_keys import CONTEXT
from bot.web.blocks import AdminSection, FormDone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden


async def admin_section(tx: Transaction, _settings: Settings) -> AdminSection:
    """Return what the administrator's page says of failures."""
    return AdminSection(template="admin_failures.html", values=await failure_rows.count_last_day(tx))


async def measure_coverage(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return what shows of how many failed jobs it is known why."""
    failed = await failure_rows.count_last_day(tx)

    def show() -> None:
        for verdict, number in failed.items():
            metrics.FAILED_JOBS.labels(verdict).set(cast("int", number))

    return show


async def tie_issue(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Tie a failure to an issue, or untie it where no address is given."""
    signature, address = fields.get("signature", "").strip().lower(), fields.get("issue_url", "").strip()
    url = escaping.url(address)
    if address and url is None:
        return FormDone(
            words="that is not the address of an issue: it begins with https:// and has no spaces"
        )
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        known = await failure_rows.tie_issue(tx, signature, url)
    if not known:
        where = "it is the end of the address of the failure's page"
        return FormDone(words=f"no failure has that signature: {where}")
    return FormDone(
        words="the failure is tied to the issue" if address else "the failure is tied to no issue"
    )
