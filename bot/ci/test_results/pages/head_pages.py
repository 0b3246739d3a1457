"""GET /{owner}/{repo}/commit/{sha}/tests and /{owner}/{repo}/run/{id}/tests: what failed, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.test_results import rows
from bot.ci.test_results.pages import failing, heads, on_head, result_rows
from bot.ci.test_results.pages.comparing import Change
from bot.ci.test_results.pages.failing import Named
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.pages.comparing import Comparison
    from bot.ci.test_results.pages.on_head import SameTest
    from bot.ci.test_results.rows import TestJobRow, TestRow
    from bot.db.transaction import Transaction

ROWS = 500  # failures in one answer, unless ?limit= says otherwise
SHOWN = 200  # tests of one table of a page
CHANGED = 50  # tests of one kind on a page
TITLES = {
    Change.NEWLY_FAILING: "Newly failing",
    Change.STILL_FAILING: "Still failing",
    Change.FIXED: "Fixed",
    Change.NEW: "New tests",
    Change.GONE: "Gone",
    Change.NEWLY_SKIPPED: "Newly skipped",
}


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A comparison with its tests, and what it is with."""

    base: str
    result: Comparison
    tests: dict[int, TestRow]

    def listed(self) -> list[tuple[Change, str, list[tuple[str, Named]], int]]:
        """Return for each change its title, the first tests with their families, and how many there are."""
        return [
            (
                change,
                TITLES[change],
                sorted(
                    (
                        (one.family, Named.of(self.tests[one.test_id]))
                        for one in named[:CHANGED]
                        if one.test_id in self.tests
                    ),
                    key=lambda shown: (shown[1].file, shown[1].suite, shown[1].name, shown[0]),
                ),
                self.result.counts[change],
            )
            for change, named in self.result.changed.items()
            if self.result.counts[change]
        ]


@page
async def commit(request: web.Request) -> web.Response:
    """Show the tests of a commit, upstream's own and those of backends."""
    repo, sha = parameters.repo(request), parameters.commit(request.match_info["sha"])
    async with request.app[CONTEXT].store.read() as tx:
        owners = await heads.owners(request, tx)
        whole = await result_rows.full_sha(tx, owners, sha)
        found = await heads.on_commit(tx, owners, whole or sha)
        backends = await heads.of_backends(request, tx, whole or sha)
        across = await _across(tx, repo, owners, whole or sha) if backends else []
        compared = await _compared(request, tx, owners, found.jobs)
        earlier = await result_rows.trusted_before(tx, owners, found.jobs[0]) if found.jobs else None
    if not found.jobs and not backends:
        raise Rejected(404, "not_found", f"no test of commit {sha[:12]} is known here")
    sha = whole or sha
    return render(
        request,
        "head_tests.html",
        fresh=parameters.of(request),
        repo=repo,
        title=f"Tests of {sha[:12]}",
        up=f"/{repo}/commit/{sha}",
        up_words=f"commit {sha[:12]}",
        found=found,
        backends=backends,
        across=across,
        compared=compared,
        earlier=earlier,
        tally=failing.verdicts,
        most=SHOWN,
        json_url=f"/api/ci/compare/{repo}?base={compared.base}&head={sha}" if compared else "",
    )


@page
async def run(request: web.Request) -> web.Response:
    """Show the tests of a run, all attempts together unless one is chosen."""
    async with request.app[CONTEXT].store.read() as tx:
        owners = await job_reads.visible(request, tx, parameters.repo(request))
        run_id = parameters.number(request.match_info["id"])
        attempts = await job_reads.shown_attempts(tx, owners, run_id)
        newest = attempts[0]
        found = await heads.of_run(tx, newest["repository_id"], newest["id"], parameters.attempt(request))
        compared = await _compared(request, tx, {newest["repository_id"]}, found.jobs)
        earlier = (
            await result_rows.trusted_before(tx, {newest["repository_id"]}, found.jobs[0])
            if found.jobs
            else None
        )
    address = f"/{newest['repo']}/run/{newest['id']}"
    return render(
        request,
        "head_tests.html",
        fresh=parameters.of(request),
        repo=newest["repo"],
        title=f"Tests of {newest['name'] or 'run'} {newest['id']}",
        up=address,
        up_words=f"run {newest['id']}",
        found=found,
        backends={},
        across=[],
        compared=compared,
        earlier=earlier,
        tally=failing.verdicts,
        most=SHOWN,
        json_url=f"/api/ci/runs/{newest['repo']}/{newest['id']}/tests",
    )


async def _across(tx: Transaction, repo: str, owners: set[int], sha: str) -> list[SameTest]:
    """Return the tests that fail on backends, each once, and where else they fail or pass."""
    listed = await allowlists.in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await on_head.read(tx, repo, owners, sha, labels)
    return [one for one in await on_head.failing_tests(tx, head, repo=repo) if one.on_backends]


async def _compared(
    request: web.Request, tx: Transaction, owners: set[int], jobs: list[TestJobRow]
) -> _Compared | None:
    """Return what changed since the commit that ?base= names."""
    text = parameters.given(request, "base")
    if not text:
        return None
    given = parameters.commit(text)
    base = await result_rows.full_sha(tx, owners, given)
    if base is None:
        raise Rejected(404, "unknown_commit", f"no test of commit {given[:12]} is known here")
    result, tests = await heads.compared(tx, await rows.jobs_on(tx, owners, base), jobs, most=CHANGED)
    return _Compared(base=base, result=result, tests=tests)
