"""Reports that arrive together share one transaction: group commit of accepted reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from bot.core import metrics
from bot.db.group_commit import GroupCommit
from bot.db.store import LOCK_TIMEOUT
from bot.oot.reports import acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.oot.reports.acceptance import Answer
    from bot.oot.reports.authorization import Submission

log = structlog.get_logger("bot.reports")
MAX_REPORTS = 500  # of one batch
PAUSE = 0.004  # seconds between two commits while reports queue up: a batch takes as many statements as one report


class ReportBatcher:
    """Accepts the reports of all requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._group: GroupCommit[Sequence[Submission], list[Answer]] = GroupCommit(
            self._write, max_items=MAX_REPORTS, max_size=MAX_REPORTS, size=len, pause=PAUSE
        )

    async def accept(self, given: Sequence[Submission]) -> list[Answer]:
        """Accept one request's reports: stored before the answers return. Raises StoreUnavailable."""
        return await self._group.put(given)

    async def _write(self, requests: Sequence[Sequence[Submission]]) -> list[list[Answer]]:
        async with self._context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            reports = [report for given in requests for report in given]
            taken = await acceptance.accept(tx, self._context.settings, reports)
        for delivery, name in taken.contradictions:
            metrics.MISMATCHES.labels(name).inc()
            log.warning("a report contradicts its token or dispatch", field=name, delivery=delivery[:100])
        answers = iter(taken.answers)
        return [[next(answers) for _ in given] for given in requests]


REPORT_BATCHER: web.AppKey[ReportBatcher] = web.AppKey("report_batcher", ReportBatcher)
