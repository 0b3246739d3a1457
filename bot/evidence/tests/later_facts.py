"""What changes a job's results after they were stored: records, disabled tests, files without a report."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.evidence.disabled import rows as disabled_rows
from bot.evidence.disabled.rows import LISTED
from bot.evidence.tests import job_parts, rows
from bot.evidence.tests.known_tests import in_batches
from bot.evidence.tests.parse.block import Code, Exceptional, MergedGroup, code_of
from bot.evidence.tests.parse.texts import digest
from bot.evidence.tests.rows import DAY, JOB, job_key
from bot.evidence.tests.tables import (
    BASELINE,
    JOB_KEY,
    JobKeyRow,
    test,
    test_class,
    test_failure,
    test_job,
    test_part,
    test_summary,
)
from bot.evidence.tests.verdict import Verdict
from bot.ingest.tables import records, repository_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.evidence.tests.job_facts import Facts
    from bot.evidence.tests.parse.block import Merged
    from bot.evidence.tests.tables import TestJobRow
    from bot.queue.tasks import Task

PART, REPOSITORY_NAME = test_part.c, repository_name.c
KEY = [PART[name] for name in JOB_KEY]
MOST = 1_000
# parts of these runs with tests whose dispatch was unknown
UNDISPATCHED = Statement(
    sa.select(*KEY)
    .where(
        PART.repository_id.in_(
            sa.select(REPOSITORY_NAME.repository_id).where(
                REPOSITORY_NAME.name.in_(sa.bindparam("repos", expanding=True))
            )
        ),
        PART.run_id.in_(sa.bindparam("runs", expanding=True)),
        sa.exists().where(
            *(JOB[name] == PART[name] for name in JOB_KEY),
            JOB.backend.is_not(None),
            JOB.dispatch_id.is_(None),
        ),
    )
    .distinct()
    .limit(MOST)
)
RUN_ID = re.compile("[0-9]{1,18}")  # GitHub's
DISABLED_TASK = "test_disabled"
RECENT = 7 * DAY
HEADS_MOST = 300  # that are judged again at once, the newest
FAILURE = test_failure.c
CRASHES_TASK = "test_crashes"
AFTER = 1200.0  # seconds after a run's end: by then its artifacts are read
CONCLUSIONS = ("failure", "timed_out")
RUNS = 3
AGE = 7 * DAY
JOBS_MOST = 50
FILES_MOST = 500  # of a job
AGAIN_MOST = 200  # jobs that are looked at again for one
CRASHED_NAME = "(no report)"
RECORD, RUN, SUMMARY = records["workflow_job"].c, records["workflow_run"].c, test_summary.c


async def note_changed_facts(tx: Transaction, changed: Changed) -> None:
    """Before a commit: request the results of jobs about which more is known now."""
    await rows.note_private_repositories(tx, changed)
    note_changed_issues(tx, changed)
    await _of_jobs(tx, changed.get("workflow_job", ()))
    await _of_reports(tx, changed.get("oot_workflow_job", ()))
    for run in changed.get("workflow_run", ()):
        if run["status"] == "completed" and run["conclusion"] in CONCLUSIONS:
            key = f"{run['repository_id']}/{run['id']}/{run['run_attempt']}"
            tx.enqueue(CRASHES_TASK, key, delay=AFTER)


def note_changed_issues(tx: Transaction, changed: Changed) -> None:
    """Before a commit: request new verdicts when issues that disable tests are read differently."""
    for identifier in sorted({row["repository_id"] for row in changed.get("ci_disabling", ())}):
        tx.enqueue(DISABLED_TASK, str(identifier))


async def judge_disabled_again(context: Context, task: Task) -> None:
    """Request new verdicts for commits on which tests failed that are, or were, disabled."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    async with context.store.transaction() as tx:
        known = await disabled_rows.listing_repositories(tx, context.settings)
        repo = known.get(int(task.key))
        if repo is None:
            return
        # what upstream disables, backends may skip
        concerned = sorted(known) if context.settings.is_upstream(repo) else [int(task.key)]
        rows.request_verdicts(tx, await _heads(tx, concerned, await _disabled_names(tx, int(task.key))))


async def missing_files(tx: Transaction, key: JobKeyRow, facts: Facts, merged: Merged) -> list[str]:
    """Return the test files that a failed job should have reported and did not."""
    if facts.conclusion not in CONCLUSIONS:
        return []
    usual = await _usual(tx, key, facts)
    reported = {file for group in merged.groups for file in (group.file, group.invoking_file) if file}
    if not usual or 2 * len(usual & reported) >= len(usual):
        return []
    return sorted(usual - reported)[:FILES_MOST]


def group_without_report(file: str) -> MergedGroup:
    """Return the crashed case that stands for a file without a report."""
    message = f"{file} gave no report: its job ended before"
    return MergedGroup(
        file=file,
        suite="",
        invoking_file="",
        digests=digest(file, "", CRASHED_NAME),
        codes=bytes([code_of(Code.CRASHED, 1)]),
        times=b"\xff\xff\xff\xff",  # not known
        exceptional=[Exceptional(0, False, 1, 1, "", message, "", "")],
        names=msgspec.Raw(msgspec.msgpack.encode([CRASHED_NAME])),
        declared={},
    )


async def request_again(tx: Transaction, trusted: TestJobRow) -> None:
    """Request the results of failed jobs that began after a trusted job of the same name, now that its files are known.

    A job that left as many reports as the trusted one lacks none of them.
    """
    at = trusted["at"]
    of_run = sa.and_(RUN.repository_id == RECORD.repository_id, RUN.id == RECORD.run_id)
    of_job = sa.and_(
        JOB.repository_id == RECORD.repository_id,
        JOB.run_id == RECORD.run_id,
        JOB.run_attempt == RECORD.run_attempt,
        JOB.job_id == RECORD.id,
    )
    unread = sa.and_(JOB.job_id.is_(None), RECORD.completed_at <= tx.now - round(AFTER * 1000))
    joined = records["workflow_run"].join(records["workflow_job"], of_run).outerjoin(test_job, of_job)
    query = (
        sa.select(RECORD.repository_id, RECORD.run_id, RECORD.run_attempt, RECORD.id)
        .select_from(joined)
        .where(
            RUN.received_at >= at,
            RUN.repository_id == trusted["repository_id"],
            RUN.conclusion.in_(CONCLUSIONS),
            RECORD.name == trusted["name"],
            RECORD.workflow_name == trusted["workflow"],
            RECORD.conclusion.in_(CONCLUSIONS),
            RECORD.started_at.between(at, at + AGE),
            RECORD.id != trusted["job_id"],
            sa.or_(unread, JOB.files < trusted["files"]),
        )
    )
    for row in await tx.run(query.distinct().limit(AGAIN_MOST)):
        job_parts.request_job_results(tx, job_key(*row))


async def request_jobs_without_reports(context: Context, task: Task) -> None:
    """Request the results of a run's failed jobs without any report. Key: repository, run and attempt, by `/`."""
    repository_id, run_id, attempt = _key(task.key)
    async with context.store.transaction() as tx:
        reported = sa.exists().where(
            JOB.repository_id == repository_id,
            JOB.run_id == run_id,
            JOB.run_attempt == attempt,
            JOB.job_id == RECORD.id,
        )
        query = sa.select(RECORD.id).where(
            RECORD.repository_id == repository_id,
            RECORD.run_id == run_id,
            RECORD.run_attempt == attempt,
            RECORD.conclusion.in_(CONCLUSIONS),
            ~reported,
        )
        for job_id in (await tx.run(query.order_by(RECORD.id).limit(1_000))).scalars():
            job_parts.request_job_results(tx, job_key(repository_id, run_id, attempt, job_id))


async def _of_jobs(tx: Transaction, jobs: Iterable[Mapping[str, Any]]) -> None:
    """Request the results of jobs that ended after their reports were read."""
    keys = sorted(
        {
            (job["repository_id"], job["run_id"], job["run_attempt"], job["id"])
            for job in jobs
            if job["status"] == "completed" and job["run_id"] and job["run_attempt"]
        }
    )
    if keys:  # a statement is not even made for the many transactions that change no job
        await _request(tx, _of_keys(sqlite=tx.sqlite), {"wanted": tx.keys(keys)})


@functools.cache
def _of_keys(*, sqlite: bool) -> Statement:
    """Return the query for jobs with these keys whose reports are stored."""
    return Statement(sa.select(*KEY).where(among_given(KEY, "wanted", sqlite=sqlite)).distinct().limit(MOST))


async def _of_reports(tx: Transaction, reports: Iterable[Mapping[str, Any]]) -> None:
    """Request the results of runs whose backend named the dispatch after their tests were stored."""
    told = [report for report in reports if report.get("dispatch_id") and RUN_ID.fullmatch(report["run_id"])]
    if told:
        repos = sorted({report["downstream_repo"].casefold() for report in told})
        await _request(
            tx, UNDISPATCHED, {"repos": repos, "runs": sorted({int(report["run_id"]) for report in told})}
        )


async def _request(tx: Transaction, query: Statement, parameters: Any = None) -> None:
    for row in await tx.run(query, parameters):
        job_parts.request_job_results(tx, job_key(*row))


async def _disabled_names(tx: Transaction, repository_id: int) -> set[str]:
    issues = await disabled_rows.disabling_issues(tx, repository_id)
    entries = [name for issue in issues if issue["listed"] for name, _ in issue["entries"]]
    return {matched["name"] for entry in entries if (matched := LISTED.fullmatch(entry))}


async def _heads(tx: Transaction, repository_ids: list[int], names: set[str]) -> list[str]:
    """Return the commits with a recent failure of a test with one of these names, or one judged as disabled."""
    newest = sa.func.max(FAILURE.at)
    recent = (
        sa.select(FAILURE.head_sha, newest)
        .where(FAILURE.repository_id.in_(repository_ids), FAILURE.at >= tx.now - RECENT)
        .group_by(FAILURE.head_sha)
        .order_by(newest.desc())
        .limit(HEADS_MOST)
    )
    heads = {row[0]: row[1] for row in await tx.run(recent.where(FAILURE.verdict == Verdict.DISABLED.value))}
    named = recent.join_from(test_failure, test, test.c.id == FAILURE.test_id)
    for some in in_batches(sorted(names)):
        heads |= {row[0]: row[1] for row in await tx.run(named.where(test.c.name.in_(some)))}
    return sorted(heads, key=lambda sha: -heads[sha])[:HEADS_MOST]


async def _usual(tx: Transaction, key: JobKeyRow, facts: Facts) -> set[str]:
    """Return the files that the job's shard reported in each of the last trusted runs; none if these are too few."""
    name = facts.name
    query = sa.select(JOB.generation, JOB.upstream_sha, JOB.head_sha).where(
        BASELINE,
        JOB.repository_id == key["repository_id"],
        JOB.family == name.shard_free,
        JOB.shard.is_not_distinct_from(name.shard),
        JOB.at.between(facts.at - AGE, facts.at),
        JOB.job_id != key["job_id"],
    )
    by_commit: dict[str, list[int]] = {}
    for row in await tx.rows(query.order_by(JOB.at.desc(), JOB.generation).limit(JOBS_MOST)):
        by_commit.setdefault(row["upstream_sha"] or row["head_sha"], []).append(row["generation"])
    by_commit.pop(facts.tested, None)
    if len(by_commit) < RUNS:
        return set()
    files_by_commit = [await _files(tx, generations) for generations in list(by_commit.values())[:RUNS]]
    return set.intersection(*files_by_commit)


async def _files(tx: Transaction, generations: Collection[int]) -> set[str]:
    query = (
        sa.select(test_class.c.file)
        .select_from(test_summary.join(test_class, test_class.c.id == SUMMARY.class_id))
        .where(SUMMARY.generation.in_(generations), test_class.c.file != "")
    )
    return set((await tx.run(query.distinct())).scalars())


def _key(text: str) -> tuple[int, int, int]:
    try:
        repository_id, run_id, attempt = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no run") from None
    return repository_id, run_id, attempt
