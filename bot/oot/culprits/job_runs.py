"""What each run of a signal's job says of its commit: good, bad, that it goes on, or nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.logs import failed_jobs
from bot.evidence.logs.failed_jobs import Reported
from bot.evidence.tests.parse.block import FAILING, PASSING, decode
from bot.evidence.tests.tables import JobGeneration, JobRun, test, test_class, test_failure, test_job
from bot.ingest import repositories
from bot.jobs import branch_reads, job_names
from bot.jobs.cells import NO_FAILURE
from bot.oot.culprits.signals import is_test, split_test
from bot.oot.results.dispatches import ON_OPEN_HEAD
from bot.oot.results.tables import BACKEND_OF_HEAD, JobRow, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.jobs.branch_reads import Branch
    from bot.jobs.cells import Run
    from bot.jobs.tables import Failure
    from bot.oot.culprits.signals import TestName
    from bot.oot.culprits.tables import Signal

REPORTED, DISPATCH, JOB = oot_workflow_job.c, oot_dispatch.c, test_job.c
TESTS_MOST = 200  # of one name, in all files and on all devices
SHAS_AT_ONCE = 500
BLOCKS_MOST = 200  # jobs whose cases are read
RunWord = Literal["good", "bad", "pending", "unbuildable", "no_result"]
FAILED = frozenset({"failure", "timed_out", "startup_failure", "action_required"})
NO_EVENT = frozenset({"infra", "timeout", "cancel"})  # kinds of failures that say nothing of the commit
BUILD = "build"
SILENT = "it was silent for too long"
NO_BUILD = "it does not build"
FAILURES_MOST = 2_000


class TestedJob(JobRun, JobGeneration):
    """A job with test results."""


@dataclass(frozen=True, kw_only=True)
class SignalRun:
    """One attempt of a run with all its shards."""

    sha: str
    run_id: str
    attempt: int
    word: RunWord
    why: str = ""  # it says nothing
    url: str | None = None
    at: int | None = None
    dispatch_id: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class KnownFailure:
    """What is known of how the signal fails."""

    signature: str | None = None
    kind: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """One job of a run."""

    conclusion: str  # empty while it goes on
    failure: Failure | None = None
    key: str = ""  # of a backend's job
    swept: bool = False  # it was silent for too long
    tests: int | None = None  # that ran


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One attempt of a run, with its jobs."""

    run: SignalRun
    shards: tuple[_Shard, ...]


async def reported_jobs(
    tx: Transaction, names: Collection[str], backend: str, shas: Sequence[str]
) -> list[JobRow]:
    """Return a backend's reports on some commits of a repository, given by all its names, case folded.

    Jobs count whatever they were dispatched for, such as a pull request at the same commit. Heavy columns are left out.
    """
    jobs: list[JobRow] = []
    light = select(JobRow, oot_workflow_job, failed_tests_json=sa.null(), environment=sa.null())
    for start in range(0, len(shas), SHAS_AT_ONCE):
        query = light.where(
            REPORTED.head_sha.in_(shas[start : start + SHAS_AT_ONCE]),
            BACKEND_OF_HEAD.in_([backend.casefold()]),
            sa.func.lower(REPORTED.upstream_repo).in_(sorted(names)),
        )
        jobs += await tx.fetch(query.order_by(REPORTED.received_at, REPORTED.job_key))
    return [row for row in jobs if "refused" not in row["flags"]]


async def failed_tests(tx: Transaction, job_keys: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the failed tests that some jobs reported, by job."""
    if not job_keys:
        return {}
    query = sa.select(REPORTED.job_key, REPORTED.failed_tests_json).where(
        REPORTED.job_key.in_(sorted(job_keys)), REPORTED.failed_tests_json.is_not(None)
    )
    return dict(map(tuple, await tx.run(query)))


async def queued_pulls(tx: Transaction, backend: str) -> list[int]:
    """Return when the dispatches of open pull requests that a backend has not answered yet were sent."""
    query = sa.select(DISPATCH.dispatched_at).where(
        DISPATCH.backend_key == backend.casefold(),
        DISPATCH.state == "sent",
        DISPATCH.heard_at.is_(None),
        DISPATCH.pr_number.is_not(None),
        DISPATCH.action.is_distinct_from("closed"),
        DISPATCH.dispatched_at.is_not(None),
        ON_OPEN_HEAD,
    )
    return list((await tx.run(query)).scalars())


async def test_ids(tx: Transaction, repo: str, wanted: TestName) -> set[int]:
    """Return the ids of a repository's tests with a name."""
    such = [
        test.c.repository_id.in_(sorted(await repositories.read_ids(tx, repo))),
        test.c.name == wanted.name,
    ]
    if wanted.suite:
        such.append(
            (test_class.c.suite == wanted.suite)
            | test_class.c.suite.endswith(f".{wanted.suite}", autoescape=True)
        )
    if wanted.file:
        such.append(test_class.c.file == wanted.file)
    query = sa.select(test.c.id).join(test_class, test_class.c.id == test.c.class_id)
    return set((await tx.run(query.where(*such).limit(TESTS_MOST))).scalars())


async def tested_jobs(
    tx: Transaction, repo: str, shas: Sequence[str], *, of_upstream: bool
) -> list[TestedJob]:
    """Return the jobs with test results of a repository on some commits: upstream's own, or those of a backend."""
    ids = sorted(await repositories.read_ids(tx, repo))
    tested = JOB.head_sha if of_upstream else JOB.upstream_sha
    rows: list[TestedJob] = []
    for start in range(0, len(shas), SHAS_AT_ONCE):
        some = shas[start : start + SHAS_AT_ONCE]
        query = select(TestedJob, test_job).where(JOB.repository_id.in_(ids), tested.in_(some))
        rows += await tx.fetch(query)
    return rows


async def outcomes_of_test(
    tx: Transaction, ids: Collection[int], generations: Collection[int]
) -> dict[int, bool]:
    """Return whether a test, given by its ids, passed in some jobs, leaving out jobs that do not say."""
    if not ids or not generations:
        return {}
    wanted = sorted(generations)[-BLOCKS_MOST:]
    failure = test_failure.c
    failed = sa.select(failure.generation).where(
        failure.generation.in_(wanted), failure.test_id.in_(sorted(ids)), failure.outcome.in_(sorted(FAILING))
    )
    outcomes = dict.fromkeys((await tx.run(failed)).scalars(), False)
    rest = [asked for asked in wanted if asked not in outcomes]
    blocks = sa.select(JOB.generation, JOB.block).where(JOB.generation.in_(rest), JOB.block.is_not(None))
    for generation, block in await tx.run(blocks):
        cases = decode(block)
        if any(case.code in PASSING for test_id in ids for case in cases.find(test_id)):
            outcomes[generation] = True
    return outcomes


async def read_job_runs(
    tx: Transaction,
    settings: Settings,
    branch: Branch,
    signal: Signal,
    shas: Sequence[str],
    *,
    known: KnownFailure | None = None,
) -> list[SignalRun]:
    """Read every run of a signal's job on some commits of its branch."""
    known = known or KnownFailure()
    attempts = await _attempts(tx, settings, branch, signal, shas)
    if not signal["test"]:
        return [_judged(attempt, signal, known) for attempt in attempts]
    told = await _outcomes_of_test(tx, branch, signal, attempts)
    return [_judged_test(attempt, told, known) for attempt in attempts]


async def runs_without_job(
    tx: Transaction, branch: Branch, signal: Signal, dispatch_ids: Iterable[str], shas: Sequence[str]
) -> dict[str, list[str]]:
    """Return, by dispatch, the jobs that a backend finished for it, none of which is the signal's."""
    wanted = set(dispatch_ids)
    names_of: defaultdict[str, list[str]] = defaultdict(list)
    running = set()
    for row in await reported_jobs(tx, branch.names, signal["backend"], shas):
        identifier = row["dispatch_id"]
        if identifier in wanted and identifier:
            name = job_names.parse_name(row["workflow_name"], row["job_name"])
            names_of[identifier].append(name.shard_free)
            if row["status"] != "completed":
                running.add(identifier)
    return {
        identifier: sorted(set(names))
        for identifier, names in names_of.items()
        if identifier not in running and signal["job"] not in names
    }


async def _attempts(
    tx: Transaction, settings: Settings, branch: Branch, signal: Signal, shas: Sequence[str]
) -> list[_Attempt]:
    if not signal["backend"]:
        runs = await branch_reads.read_runs(tx, settings, branch, shas, signal["job"])
        return [attempt for sha, several in runs.items() for attempt in _of_upstream(sha, several)]
    reported = await reported_jobs(tx, branch.names, signal["backend"], shas)
    mine = _of_job(reported, signal["job"])
    failing = {(row["run_id"], row["run_attempt"]) for row in mine if row["conclusion"] in FAILED}
    logs = await failed_jobs.failures_of_runs(
        tx, Reported(frozenset({signal["backend"].casefold()}), tuple(sorted(failing))), limit=FAILURES_MOST
    )
    by_run: defaultdict[tuple[str, int], list[FailedJob]] = defaultdict(list)
    for log in logs:
        by_run[log["run_id"], log["run_attempt"]].append(log)
    return _of_backend(mine, by_run)


def _of_job(reported: Iterable[JobRow], job: str) -> list[JobRow]:
    """Return the rows of a job named without its shard; its commit tells whether numbers in names are shards."""
    by_commit: defaultdict[str, list[JobRow]] = defaultdict(list)
    for row in reported:
        by_commit[row["head_sha"] or ""].append(row)
    of_job = []
    for several in by_commit.values():
        names = job_names.resolve_shards(
            job_names.parse_name(row["workflow_name"], row["job_name"]) for row in several
        )
        of_job += [row for row, name in zip(several, names, strict=True) if name.shard_free == job]
    return of_job


def _of_backend(
    reported: Iterable[JobRow], logs: Mapping[tuple[str, int], Sequence[FailedJob]]
) -> list[_Attempt]:
    by_attempt: defaultdict[tuple[str, str, int], list[JobRow]] = defaultdict(list)
    for row in reported:
        by_attempt[row["head_sha"] or "", row["run_id"], row["run_attempt"]].append(row)
    return [
        _Attempt(
            run=SignalRun(
                sha=sha,
                run_id=run_id,
                attempt=attempt,
                word="no_result",
                url=several[0]["workflow_run_url"],
                at=max((row["completed_at"] or 0 for row in several), default=0) or None,
                dispatch_id=several[0]["dispatch_id"],
            ),
            shards=tuple(_reported_shard(row, logs.get((run_id, attempt), ())) for row in several),
        )
        for (sha, run_id, attempt), several in by_attempt.items()
    ]


def _reported_shard(row: JobRow, logs: Sequence[FailedJob]) -> _Shard:
    log = next((failed for failed in logs if failed["name"] == row["job_name"]), None)
    log = log or (logs[0] if len(logs) == 1 else None)
    failure: Failure | None = None
    if log is not None:
        failure = {
            **NO_FAILURE,
            "signature": log["signature"],
            "line": log["line"],
            "failure_kind": log["kind"],
        }
    return _Shard(
        conclusion=row["conclusion"] or "",
        failure=failure,
        key=row["job_key"],
        swept=bool(row["flags"].get("swept")),
        tests=row["total_tests"],
    )


def _of_upstream(sha: str, runs: Iterable[Run]) -> list[_Attempt]:
    by_attempt: defaultdict[tuple[int, int], list[Run]] = defaultdict(list)
    for run in runs:
        by_attempt[run.run_id, run.attempt].append(run)
    return [
        _Attempt(
            run=SignalRun(
                sha=sha,
                run_id=str(run_id),
                attempt=attempt,
                word="no_result",
                at=max((job_run.completed_at or 0 for job_run in several), default=0) or None,
            ),
            shards=tuple(
                _Shard(conclusion=job_run.conclusion, failure=job_run.failure) for job_run in several
            ),
        )
        for (run_id, attempt), several in by_attempt.items()
    ]


def _judged(attempt: _Attempt, signal: Signal, known: KnownFailure) -> SignalRun:
    """Judge what a run says of the job, or of one way in which it fails."""
    failures = [shard for shard in attempt.shards if shard.conclusion in FAILED]
    words = [_word_of_failure(shard, signal, known) for shard in failures]
    failure = next((shard.failure for shard in failures if shard.failure), None)
    telling: tuple[RunWord, RunWord] = ("bad", "unbuildable")
    for wanted in telling:
        if why := next((why for word, why in words if word == wanted), None):
            return replace(attempt.run, word=wanted, why=why, failure=failure)
    if any(not shard.conclusion for shard in attempt.shards):
        return replace(attempt.run, word="pending")
    if words:
        return replace(attempt.run, why=words[0][1], failure=failure)
    if any(shard.conclusion == "success" for shard in attempt.shards) and all(
        shard.conclusion in {"success", "skipped", "neutral"} for shard in attempt.shards
    ):
        return replace(attempt.run, word="good", why="it passed")
    return replace(attempt.run, why=_ended(attempt))


def _word_of_failure(shard: _Shard, signal: Signal, known: KnownFailure) -> tuple[RunWord, str]:
    failure = shard.failure or NO_FAILURE
    kind, signature = failure["failure_kind"], failure["signature"]
    if shard.swept:
        return "no_result", SILENT
    if shard.conclusion in {"startup_failure", "action_required"}:
        return "no_result", "it never started"
    if kind in NO_EVENT:
        return "no_result", f"its failure is of kind {kind}"
    if signal["signature"] and signature != signal["signature"]:
        return "unbuildable", "it fails otherwise"
    if _is_other_build(kind, signature, known):
        return "unbuildable", NO_BUILD
    return "bad", "it failed"


def _is_other_build(kind: str | None, signature: str | None, known: KnownFailure) -> bool:
    """Whether the build fails in another way than at the bad end; where that is not known, it may be the same."""
    if kind != BUILD or known.kind is None:
        return False
    return known.kind != BUILD or (signature != known.signature and known.signature is not None)


def _judged_test(attempt: _Attempt, told: Mapping[tuple[str, int], bool], known: KnownFailure) -> SignalRun:
    """Judge what a run says of a test: what its reports leave out is unknown, unless every job passed."""
    passed = told.get((attempt.run.run_id, attempt.run.attempt))
    if passed is not None:
        outcome: tuple[RunWord, str] = ("good", "it passed") if passed else ("bad", "it failed")
    elif any(not shard.conclusion for shard in attempt.shards):
        outcome = ("pending", "")
    else:
        outcome = _untold(attempt, known)
    word, why = outcome
    return replace(attempt.run, word=word, why=why)


def _untold(attempt: _Attempt, known: KnownFailure) -> tuple[RunWord, str]:
    """Judge what a finished run says of a test that its reports do not mention."""
    if all(shard.conclusion == "success" for shard in attempt.shards):
        nothing_ran = any(shard.tests == 0 for shard in attempt.shards)
        return ("no_result", "no test ran") if nothing_ran else ("good", "the job passed")
    if any(shard.swept for shard in attempt.shards):
        return "no_result", SILENT
    failures = [shard.failure or NO_FAILURE for shard in attempt.shards if shard.conclusion in FAILED]
    if any(_is_other_build(each["failure_kind"], each["signature"], known) for each in failures):
        return "unbuildable", NO_BUILD
    if failures and not any(each["failure_kind"] in NO_EVENT for each in failures):
        return "unbuildable", "it fails before the test says how it ends"
    return "no_result", _ended(attempt)


def _ended(attempt: _Attempt) -> str:
    return f"it ended as {', '.join(sorted({shard.conclusion for shard in attempt.shards}))}".replace(
        "_", " "
    )


async def _outcomes_of_test(
    tx: Transaction, branch: Branch, signal: Signal, attempts: Sequence[_Attempt]
) -> dict[tuple[str, int], bool]:
    """Return whether the test passed, by run and attempt, where test results or reports say."""
    wanted = split_test(signal["test"])
    repo = signal["backend"] or branch.repository["full_name"]
    shas = sorted({attempt.run.sha for attempt in attempts})
    jobs = await tested_jobs(tx, repo, shas, of_upstream=not signal["backend"])
    ids = await test_ids(tx, repo, wanted) if jobs else set()
    passed = await outcomes_of_test(tx, ids, [job["generation"] for job in jobs])
    outcomes: dict[tuple[str, int], bool] = {}
    for job in jobs:
        if (outcome := passed.get(job["generation"])) is not None:
            run = (str(job["run_id"]), job["run_attempt"])
            outcomes[run] = outcomes.get(run, True) and outcome
    failing = {
        shard.key: attempt.run
        for attempt in attempts
        for shard in attempt.shards
        if shard.conclusion in FAILED
    }
    for key, tests in (await failed_tests(tx, set(failing) - {""})).items():
        if any(_is_reported(wanted, each) for each in tests):
            outcomes[failing[key].run_id, failing[key].attempt] = False
    return outcomes


def _is_reported(wanted: TestName, reported: Mapping[str, Any]) -> bool:
    file, suite, name = (str(reported.get(part) or "") for part in ("file", "classname", "name"))
    return is_test(wanted, file=file, suite=suite, name=name)
