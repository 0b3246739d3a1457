"""GET /{owner}/{repo}/tests/file/{path}: the suites of a file, what they came to last, and which of its tests fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.test_results.store import result_rows
from bot.ci.test_results.views import heads, test_list
from bot.core.errors import Rejected
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.view import Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.store.result_rows import SuiteCount
    from bot.ci.test_results.tables import SummaryRow
    from bot.ci.test_results.views.test_list import Listing
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

SUMMARIES = 1_000  # newest sums that are looked at for the last one of every suite
PATH = declare.in_path(
    "path", op.Text, "a file of tests", parse=lambda text: text[: test_list.LONGEST], default="", only="page"
)
CLASSES = 500  # suites of which a file's page tells the last result


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite, and what the newest trusted job or run of a backend said of it."""

    row: SuiteCount
    summary: SummaryRow | None
    job: TestJobRow | None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tests of a file."""

    repo: str
    path: str
    suites: list[Suite]
    listed: Listing


async def read_test_file(asked: Asked) -> Found:
    """Read the tests of a file."""
    repo, path = asked[REPO], asked[PATH]
    suites = await _suites(asked.tx, await heads.owners(asked), path)
    if not suites:
        raise Rejected(404, "unknown_file", f"no test of that file is known in {repo}")
    return Found(repo=repo, path=path, suites=suites, listed=await test_list.read_list(asked, file=path))


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    repo, path = found.repo, found.path
    return {
        "repo": repo,
        "path": path,
        "suites": found.suites,
        "found": found.listed,
        "every": f"/{repo}/tests?{parameters.query({'file': path, 'sort': 'name'})}",
        "json_url": f"/api/ci/tests/{repo}?{parameters.query({'file': path})}",
    }


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


VIEW = View(
    read=read_test_file,
    parameters=(*test_list.PARAMETERS, PATH),
    page=Page(path=f"{REPOSITORY}/tests/file/{{path:.+}}", template="test_file.html", values=show),
)
