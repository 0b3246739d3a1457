"""The views of tests in the order of the OpenAPI document, and what tests add to other pages and to search."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from bot.evidence.disabled.feature import DisabledSettings
from bot.evidence.disabled.lists import SENT_LISTS, BytesCache
from bot.evidence.tests import failing, losses, result_rows, rows
from bot.evidence.tests.failing import (
    MESSAGE_MOST,
    NAME_MOST,
    describe_counts,
    shorten_line,
    verdict_tone,
    verdict_words,
)
from bot.evidence.tests.losses import LossKind
from bot.evidence.tests.parse import texts
from bot.evidence.tests.tables import test
from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.pages import job_reads
from bot.pages.tests import (
    backend_tests,
    commits,
    disabled,
    history,
    lost_tests,
    one_test,
    test_list,
    test_lists,
)
from bot.web import access, html
from bot.web.blocks import Block, BlockLine
from bot.web.search import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from bot.db.transaction import Transaction
    from bot.evidence.tests.failing import FailingTest, FewTests, TestedHead
    from bot.evidence.tests.tables import SuiteRow, TestJobRow, TestRow
    from bot.web.blocks import (
        CellSubject,
        CommitSubject,
        JobSubject,
        PullSubject,
        RunSubject,
    )
    from bot.web.parameters import Query
    from bot.web.search import SearchWords

VALUES = {"SECONDS": history.format_seconds, "LOSS_WORDS": lost_tests.describe_loss}  # what templates see
TEST_VIEWS = (
    test_list.LIST_VIEW,
    one_test.TEST_VIEW,
    lost_tests.LOST_VIEW,
    commits.RUN_VIEW,
    backend_tests.BACKEND_VIEW,
    commits.COMPARE_VIEW,
    commits.COMMIT_VIEW,
    test_list.FILE_VIEW,
    lost_tests.FLAKY_VIEW,
)
DISABLED_VIEWS = (*disabled.LIST_ENDPOINTS, disabled.ISSUES_VIEW)
LIST_VIEWS = (
    *test_lists.TIMES_ENDPOINTS,
    test_lists.SUGGESTIONS_VIEW,
    test_lists.SHARDS_VIEW,
    test_lists.POSTED_SHARDS,
)
LOSSES = 100  # that are looked at
SHOWN = 10  # tests of a section or comment; the rest are on the commit's page
START = "test_"  # may be left out
SUITES = 5
SEPARATORS = ("::", ".")  # between suite and name, as people copy them


def setup_tests(app: web.Application) -> None:
    """Add the names that templates use."""
    html.add_names(app, values=failing.TEMPLATE_VALUES | VALUES)


async def has_tests(query: Query, repo: str) -> bool:
    """Whether tests of a repository are known."""
    return await job_reads.has_rows(query, repo, test.c.repository_id)


def setup_disabled(app: web.Application) -> None:
    """Add the cache of lists."""
    app[SENT_LISTS] = BytesCache()


def setup_lists(app: web.Application) -> None:
    """Add the cache of times."""
    app[test_lists.TIMES] = BytesCache()


async def has_suggestions(query: Query, repo: str) -> bool:
    """Whether suggestions are on and tests are known."""
    wanted = query.settings.of(DisabledSettings).ci_disable == "suggest"
    return wanted and await job_reads.has_rows(query, repo, test.c.repository_id)


async def job_blocks(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Summarize a job's tests."""
    jobs = await rows.jobs_of_run(tx, subject.repository_id, subject.run_id, subject.run_attempt)
    mine = [job for job in jobs if job["job_id"] == subject.job_id]
    page = _tests_page(mine[0], subject.repo, mine[0]["head_sha"]) if mine else ""
    return await _of_jobs(tx, mine, subject.repo, page)


async def run_blocks(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Summarize a run's tests."""
    jobs = await rows.jobs_of_run(tx, subject.repository_id, subject.run_id)
    return await _of_jobs(tx, jobs, subject.repo, f"/{subject.repo}/run/{subject.run_id}/tests")


async def pull_blocks(tx: Transaction, subject: PullSubject) -> list[Block]:
    """List what the shown head has fewer tests of than usual."""
    if not subject.head_sha:
        return []
    return await _fewer(tx, subject.repo, subject.head_sha, of_pull=True)


async def commit_blocks(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """List what a commit has fewer tests of than usual."""
    return await _fewer(tx, subject.repo, subject.sha, of_pull=False)


async def cell_lines(tx: Transaction, subject: CellSubject) -> dict[int, BlockLine]:
    """Summarize the tests of jobs, by job id."""
    return {
        job["job_id"]: BlockLine(
            text=describe_counts([job]),
            url=_tests_page(job, subject.repo, subject.sha),
            tone="bad" if job["failed"] or job["errors"] else "good",
        )
        for job in await rows.jobs_on(tx, [subject.repository_id], subject.sha)
        if job["job_id"] in subject.job_ids
    }


async def find_hits(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Find tests and suites, and link to the repository's list of tests for these words."""
    if words.number is not None:
        return []
    private = access.reads_private(query.request)
    shown = await record_store.read_visible_repositories(query.tx, query.hidden, private=private)
    hits = []
    if len(words.text.split()) == 1:
        suite, name = _split(words.text)
        hits += await _tests(query, shown, suite, name, limit)
        suites = await result_rows.suites_by_name(query.tx, shown.keys(), words.text, limit=SUITES)
        hits += [_suite(row, shown[row["repository_id"]]) for row in suites]
    return [*hits, *await _beside_upstream(query, words), *_lists(query, words)]


def _tests_page(job: TestJobRow, repo: str, sha: str) -> str:
    """Return the address of a job's tests: the page of its run, or of its commit for another CI."""
    return f"/{repo}/run/{job['run_id']}/tests" if job["run_id"] > 0 else f"/{repo}/commit/{sha}/tests"


async def _of_jobs(tx: Transaction, jobs: Sequence[TestJobRow], repo: str, page: str) -> list[Block]:
    if not jobs:
        return []
    bad = [
        job["generation"] for job in jobs if job["failed"] or job["errors"] or job["flaky"] or job["crashed"]
    ]
    tests = failing.group_failures(await result_rows.failing_cases(tx, bad), jobs)
    lines = [
        BlockLine(
            text=describe_counts(jobs),
            url=page,
            tone="bad" if any(test.failed for test in tests) else "good",
        )
    ]
    lines += [_of_test(test, repo) for test in tests[:SHOWN]]
    if len(tests) > SHOWN:
        lines.append(BlockLine(text=f"all {len(tests):,}", url=page))
    unreadable = sum(len(job["unreadable"]) for job in jobs)
    if unreadable:
        read = sum(job["files"] for job in jobs)
        first = next(report for job in jobs for report in job["unreadable"])
        words = f"{unreadable:,} of {read + unreadable:,} reports unreadable: {first['member']}: {first['reason']}"
        lines.append(BlockLine(text=shorten_line(words, NAME_MOST + MESSAGE_MOST), tone="warn"))
    return [Block(heading="Tests", lines=tuple(lines))]


async def _fewer(tx: Transaction, repo: str, sha: str, *, of_pull: bool) -> list[Block]:
    head = await failing.read_shown_head(tx, repo, sha, of_pull=of_pull)
    if not head.jobs:
        return []
    return [*_thin(await failing.backends_with_few_tests(tx, head), head), *await _lost(tx, head, repo, sha)]


async def _lost(tx: Transaction, head: TestedHead, repo: str, sha: str) -> list[Block]:
    """List what complete runs on the commit lost since the trusted runs before them."""
    shown = {job["run_id"] for job in head.jobs}
    lost = [row for row in await losses.losses_on_commit(tx, sha, limit=LOSSES) if row["run_id"] in shown]
    lines = []
    for loss in await lost_tests.with_gone_tests(tx, lost[:SHOWN]):
        row = loss.row
        whose = head.labels.get(row["repository_id"], "") if row["backend"] else ""
        place = " ".join(part for part in (row["file"], row["suite"]) if part)
        parts = [whose, place, row["family"], loss.words]
        lines.append(
            BlockLine(
                text=shorten_line(" · ".join(part for part in parts if part), NAME_MOST + MESSAGE_MOST),
                url=f"/{row['backend'] or repo}/tests/lost",
                tone="idle" if row["kind"] == LossKind.GONE else "warn",
            )
        )
    if len(lost) > SHOWN:
        lines.append(BlockLine(text="and more", url=f"/{repo}/tests/lost"))
    return [Block(heading="Lost tests", lines=tuple(lines))] if lines else []


def _thin(backends: Mapping[str, FewTests], head: TestedHead) -> list[Block]:
    names = {
        (job["backend"] or "").casefold(): (head.labels[job["repository_id"]], job["backend"] or "")
        for job in head.jobs
        if job["backend"]
    }
    lines = [
        BlockLine(
            text=f"{names[backend][0]} passed, but {little}",
            url=f"/oot/{names[backend][1]}",
            tone="idle" if little.files else "warn",
        )
        for backend, little in sorted(backends.items())
    ]
    return [Block(heading="Fewer tests than usual", lines=tuple(lines))] if lines else []


def _of_test(test: FailingTest, repo: str) -> BlockLine:
    name = " ".join(part for part in (test.file, test.suite, test.name) if part)
    words = verdict_words(test.verdict) if test.failed else "flaky: passed when tried again"
    parts = [
        shorten_line(name, NAME_MOST),
        words,
        shorten_line(test.message, MESSAGE_MOST),
    ]
    return BlockLine(
        text=" · ".join(part for part in parts if part),
        url=f"/{repo}/test/{test.digest}",
        tone=verdict_tone(test.verdict) if test.failed else "warn",
    )


def _split(text: str) -> tuple[str, str]:
    """Split the name of a test into suite and name; the suite is empty if it is not given."""
    for separator in SEPARATORS:
        place, matched, name = text.rpartition(separator)
        if matched and name and place:
            return place.rpartition(separator)[2], name
    return "", text


async def _tests(query: Query, shown: Mapping[int, str], suite: str, name: str, limit: int) -> list[Hit]:
    starts = [name] if name.startswith(START) else [name, START + name]
    rows: list[TestRow] = []
    for start in starts:
        rows += await result_rows.tests_by_name(query.tx, shown.keys(), start, limit=limit)
    mine = [row for row in rows if not suite or row["suite"].endswith(suite)]
    return [_test(row, shown[row["repository_id"]]) for row in mine[:limit]]


def _test(row: TestRow, repo: str) -> Hit:
    return Hit(
        kind="test",
        title=row["name"],
        path=f"/{repo}/test/{texts.shown_digest(row['digest'])}",
        repo=repo,
        detail=" ".join(part for part in (row["suite"], row["file"]) if part),
    )


def _suite(row: SuiteRow, repo: str) -> Hit:
    query = urlencode({"suite": row["suite"], "sort": "name"})
    return Hit(
        kind="test",
        title=row["suite"] or row["file"],
        path=f"/{repo}/tests/file/{quote(row['file'])}"
        if row["file"] and not row["suite"]
        else f"/{repo}/tests?{query}",
        repo=repo,
        detail=f"suite, {row['file']}" if row["file"] else "suite",
    )


async def _beside_upstream(query: Query, words: SearchWords) -> list[Hit]:
    """Link to the tests of the backend that the text names."""
    allowlist = await allowlists.read_in_force(query.tx)
    if allowlist is None or all(map(query.hidden.has, query.settings.upstream_repo)):
        return []
    return [
        Hit(
            kind="list",
            title=f"Tests of {entry.device or entry.repo} beside upstream",
            path=f"/oot/{entry.repo}/tests",
        )
        for entry in allowlist.entries
        if words.folded in {entry.key, (entry.device or entry.repo).casefold()}
    ]


def _lists(query: Query, words: SearchWords) -> list[Hit]:
    choice = urlencode({"q": words.text, "sort": "name"})
    return [
        Hit(
            kind="list",
            title=f"Tests with “{words.text}” in name, suite or file",
            path=f"/{repo}/tests?{choice}",
            repo=repo,
        )
        for repo in query.settings.upstream_repo
        if not query.hidden.has(repo)
    ]
