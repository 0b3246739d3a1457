"""GET /{owner}/{repo}/tests/file/{path}: the suites of a file, what they came to last, and which of its tests fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.test_results.store import result_rows
from bot.ci.test_results.views import heads, test_list
from bot.core.errors import Rejected
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.tables import SuiteRow, SummaryRow
    from bot.db.transaction import Transaction

SUMMARIES = 1_000  # newest sums that are looked at for the last one of every suite
CLASSES = 500  # suites of which a file's page tells the last result


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite, and what the newest trusted job or run of a backend said of it."""

    row: SuiteRow
    summary: SummaryRow | None
    job: TestJobRow | None


@page
async def file(request: web.Request) -> web.Response:
    """Show the tests of a file."""
    repo, path = parameters.repo(request), request.match_info["path"][: test_list.LONGEST]
    async with request.app[CONTEXT].store.read() as tx:
        suites = await _suites(tx, await heads.owners(request, tx), path)
        if not suites:
            raise Rejected(404, "unknown_file", f"no test of that file is known in {repo}")
        found = await test_list.read(request, tx, file=path)
    return render(
        request,
        "test_file.html",
        fresh=parameters.of(request),
        repo=repo,
        path=path,
        suites=suites,
        found=found,
        every=f"/{repo}/tests?{parameters.query({'file': path, 'sort': 'name'})}",
        json_url=f"/api/ci/tests/{repo}?{parameters.query({'file': path})}",
    )


async def _suites(tx: Transaction, owners: set[int], path: str) -> list[Suite]:
    rows = await result_rows.suites_of_file(tx, owners, path)
    ids = [row["id"] for row in rows[:CLASSES]]
    newest: dict[int, SummaryRow] = {}
    for summary in await result_rows.newest_summaries(tx, ids, limit=SUMMARIES) if ids else ():
        newest.setdefault(summary["class_id"], summary)
    jobs = await result_rows.jobs_by_generation(tx, {one["generation"] for one in newest.values()})
    shown = {key: one for key, one in newest.items() if one["generation"] in jobs}
    return [
        Suite(
            row=row,
            summary=shown.get(row["id"]),
            job=jobs[shown[row["id"]]["generation"]] if row["id"] in shown else None,
        )
        for row in rows
    ]
