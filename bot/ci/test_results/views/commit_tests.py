"""GET /{owner}/{repo}/commit/{sha}/tests: what failed on a commit, upstream and on backends, and what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.test_results.store import result_rows
from bot.ci.test_results.views import compare_tests, failing, heads, on_head
from bot.ci.test_results.views.compare_tests import BASE
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.web import view_parameters as declare
from bot.web.view import Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_results.views.compare_tests import ComparedHeads
    from bot.ci.test_results.views.heads import Tested
    from bot.ci.test_results.views.on_head import SameTest
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

SHA = declare.commit("a commit, or its beginning")


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tests of a commit."""

    repo: str
    sha: str
    tested: Tested
    backends: dict[str, Tested]
    across: list[SameTest]
    compared: ComparedHeads | None
    earlier: str | None


async def read_commit_tests(asked: Asked) -> Found:
    """Read the tests of a commit, upstream's own and those of backends."""
    tx, repo = asked.tx, asked[REPO]
    owners = await heads.owners(asked)
    sha = await result_rows.full_sha(tx, owners, asked[SHA]) or asked[SHA]
    tested = await heads.tests_on_commit(tx, owners, sha)
    backends = await heads.tests_of_backends(asked.request, tx, sha)
    across = await _across(tx, repo, owners, sha) if backends else []
    beside = await compare_tests.read_beside(asked, owners, tested.jobs)
    if not tested.jobs and not backends:
        raise Rejected(404, "not_found", f"no test of commit {asked[SHA][:12]} is known here")
    return Found(
        repo=repo,
        sha=sha,
        tested=tested,
        backends=backends,
        across=across,
        compared=beside.compared,
        earlier=beside.earlier,
    )


async def _across(tx: Transaction, repo: str, owners: set[int], sha: str) -> list[SameTest]:
    """Return the tests that fail on backends, each once, and where else they fail or pass."""
    listed = await allowlists.in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await on_head.read_head(tx, repo, owners, sha, labels)
    return [one for one in await on_head.failing_tests(tx, head, repo=repo) if one.on_backends]


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    repo, sha, compared = found.repo, found.sha, found.compared
    return {
        "repo": repo,
        "title": f"Tests of {sha[:12]}",
        "up": f"/{repo}/commit/{sha}",
        "up_words": f"commit {sha[:12]}",
        "found": found.tested,
        "backends": found.backends,
        "across": found.across,
        "compared": compared,
        "earlier": found.earlier,
        "tally": failing.verdicts,
        "most": heads.SHOWN,
        "json_url": f"/api/ci/compare/{repo}?base={compared.base}&head={sha}" if compared else "",
    }


VIEW = View(
    read=read_commit_tests,
    parameters=(REPO, SHA, BASE),
    page=Page(path=f"{REPOSITORY}/commit/{{sha}}/tests", template="head_tests.html", values=show),
)
