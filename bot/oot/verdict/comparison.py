"""Comparison of failed jobs with the same jobs elsewhere: new, known, flaky; its tables and statements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.db.rows import Bool, Millis, Text, select, table
from bot.db.statements import RowStatement, Statement
from bot.ingest.tables import records
from bot.oot.results.tables import (
    SELF_TRIGGERED,
    JobFlags,
    JobOutcome,
    JobPage,
    JobSpan,
    JobSubject,
    JobTests,
    oot_dispatch,
    oot_workflow_job,
)
from bot.oot.verdict.verdict import RED_CONCLUSIONS
from bot.oot.verdict.view import BaseCommit, History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.pull_state import PullHead
    from bot.oot.verdict.view import Job

JOB = oot_workflow_job.c
# cancelled or skipped runs show nothing, and there may be many
DECISIVE = sorted({"success", *RED_CONCLUSIONS})
KEYS_PER_QUERY = 500
MOST_COMPARED = 30  # failing jobs of a backend that are compared
DAY = 86_400_000  # milliseconds
BASE_AGE_MOST, ELSEWHERE_AGE_MOST = 30 * DAY, 7 * DAY  # maximum age of a run that a failure is compared with
RUNS_ON_BASE, RUNS_ELSEWHERE = 3, 10  # how many of them are read
ENOUGH_OTHERS = 2  # pull requests that fail alike, where failed tests were not reported

Test = tuple[str | None, str]  # classname, name


class ComparedRow(TypedDict):
    """What a failed job was found to be, compared with the same job elsewhere."""

    job_key: Text
    completed_at: Millis  # the job's: a later completion is compared again
    history: Text
    url: Text | None
    elsewhere: Bool


oot_compared = table("oot_compared", ComparedRow, key=("job_key",))


class MergeBaseRow(TypedDict):
    """The commit at which a pull request's head left its base branch."""

    upstream_repo: Text
    head_sha: Text
    base_ref: Text
    merge_base: Text | None  # null: GitHub knows none
    committed_at: Millis | None  # when that commit was made
    asked_at: Millis


oot_merge_base = table("oot_merge_base", MergeBaseRow, key=("upstream_repo", "head_sha", "base_ref"))


class PastRow(JobOutcome, JobSubject, JobPage, JobSpan, JobTests, JobFlags):
    """How a job ended: the columns that are compared."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A failed job to be compared, and the commits that its own commit is based on."""

    job: JobRow
    base_ref: str | None
    base_shas: frozenset[str]


COMPARED = RowStatement(
    select(ComparedRow, oot_compared).where(oot_compared.c.job_key.in_(sa.bindparam("keys", expanding=True)))
)
MERGE_BASES = Statement(
    sa.select(oot_merge_base.c.head_sha, oot_merge_base.c.merge_base, oot_merge_base.c.committed_at).where(
        oot_merge_base.c.upstream_repo == sa.bindparam("of_repo"),
        oot_merge_base.c.head_sha.in_(sa.bindparam("heads", expanding=True)),
        oot_merge_base.c.base_ref == sa.bindparam("of_base"),
    )
)


class MergeBase(NamedTuple):
    """Where a head left its base branch."""

    sha: str | None  # None: GitHub knows none
    committed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """How one run of a job ended."""

    conclusion: str | None
    tests: frozenset[Test] | None  # those that failed; None when not all were reported
    at: int  # when it ended, epoch milliseconds
    url: str | None = None
    pull: int | None = None  # the pull request it ran for; None: a branch

    @property
    def red(self) -> bool:
        """Whether it failed."""
        return self.conclusion in RED_CONCLUSIONS

    def shows(self, tests: frozenset[Test]) -> bool:
        """Whether all of these tests are known to have failed in it."""
        return self.tests is not None and tests <= self.tests


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a failing job is, and the run that shows it."""

    history: History
    url: str | None = None
    elsewhere: bool = False  # shown by another pull request


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """A failed job, and all that its backend reported on the same commit, oldest first."""

    failed: Failed
    same_head: Sequence[JobRow]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result for each failure by job key, and the rows that are not stored yet."""

    by_key: Mapping[str, Compared]
    fresh: Sequence[ComparedRow]


def _past(*conditions: sa.ColumnElement[bool]) -> RowStatement[PastRow]:
    """Return the query of runs of the same job, reported by the backend itself, newest first."""
    bound = sa.bindparam
    same = (
        JOB.job_name == bound("name"),
        JOB.workflow_name == bound("workflow"),
        JOB.completed_at.between(bound("after"), bound("until")),
        sa.func.lower(JOB.downstream_repo) == bound("downstream"),
        sa.func.lower(JOB.upstream_repo) == bound("upstream"),
        JOB.status == "completed",
        JOB.conclusion.in_(DECISIVE),
        JOB.source == "callback",
        JOB.job_key != bound("key"),
    )
    query = select(PastRow, oot_workflow_job).where(*same, *conditions)
    newest_first = query.order_by(JOB.completed_at.desc(), JOB.job_key)
    return RowStatement(newest_first.limit(bound("most")))


def _on_base() -> sa.ColumnElement[bool]:
    push = records["push"].c
    ref = push.ref == sa.bindparam("ref")
    dispatched = sa.exists().where(
        oot_dispatch.c.id == JOB.dispatch_id, push.guid == oot_dispatch.c.source_guid, ref
    )
    tip = sa.exists().where(
        push.after == JOB.head_sha, ref, sa.func.lower(push.repo) == sa.func.lower(JOB.upstream_repo)
    )
    self_triggered = sa.and_(JOB.event_type.in_(SELF_TRIGGERED), tip)
    return sa.or_(JOB.head_sha.in_(sa.bindparam("bases", expanding=True)), dispatched, self_triggered)


# built once: a pull request may have hundreds of failures
ON_BASE = _past(JOB.pr_number.is_(None), _on_base())
ON_OTHER_PULLS = _past(
    JOB.pr_number.is_not(None),
    JOB.pr_number.is_distinct_from(sa.bindparam("pull")),
    JOB.head_sha != sa.bindparam("head"),
)


async def past_on_base(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[PastRow]:
    """Return the runs of a job on the base branch or merge base that ended before it did, newest first."""
    about = {"ref": f"refs/heads/{failed.base_ref}", "bases": sorted(failed.base_shas)}
    return await tx.fetch(ON_BASE, _about(failed.job, within, limit) | about)


async def past_on_other_pulls(tx: Transaction, failed: Failed, *, within: int, limit: int) -> list[PastRow]:
    """Return the runs of a job on other pull requests that ended before it did, newest first."""
    about = {"pull": failed.job["pr_number"], "head": failed.job["head_sha"]}
    return await tx.fetch(ON_OTHER_PULLS, _about(failed.job, within, limit) | about)


async def read_compared(tx: Transaction, keys: Sequence[str]) -> dict[str, ComparedRow]:
    """Return the stored comparisons by job key: comparing a job takes two queries, and its result never changes."""
    by_key: dict[str, ComparedRow] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = {"keys": keys[start : start + KEYS_PER_QUERY]}
        by_key |= {row["job_key"]: row for row in await tx.fetch(COMPARED, some)}
    return by_key


async def store_compared(tx: Transaction, rows: Sequence[ComparedRow]) -> None:
    """Store comparisons."""
    if rows:
        changed = ("completed_at", "history", "url", "elsewhere")
        await tx.upsert(oot_compared, rows, replaced=changed)


async def read_merge_bases(
    tx: Transaction, repo: str, heads: Sequence[str], *, base_ref: str
) -> dict[str, MergeBase]:
    """Return the merge base of each head with a base branch, where GitHub has told it."""
    about = {"of_repo": repo, "heads": list(heads), "of_base": base_ref}
    return {
        row.head_sha: MergeBase(row.merge_base, row.committed_at) for row in await tx.run(MERGE_BASES, about)
    }


async def store_merge_base(
    tx: Transaction, repo: str, head_sha: str, merge_base: MergeBase, *, base_ref: str
) -> None:
    """Store a head's merge base with a base branch, which never changes."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_ref": base_ref, "merge_base": merge_base.sha,
        "committed_at": merge_base.committed_at, "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(oot_merge_base).values(values).on_conflict_do_nothing())


async def compare_failures(tx: Transaction, head: PullHead, *, base_ref: str | None) -> PullHead:
    """Return a head with its base, its failing jobs compared with others."""
    (based,) = await with_bases(tx, [head], base_ref=base_ref)
    comparison = await compare_jobs(tx, comparable_jobs(based, base_ref))
    return with_histories(based, comparison.by_key)


async def with_bases(tx: Transaction, heads: Sequence[PullHead], *, base_ref: str | None) -> list[PullHead]:
    """Return heads of one pull request with their bases, where these are known."""
    shas = [head.view.head_sha for head in heads]
    known = await read_merge_bases(tx, heads[0].view.repo, shas, base_ref=base_ref or "") if heads else {}
    return [_with_base(head, base_ref, known.get(head.view.head_sha)) for head in heads]


def comparable_jobs(head: PullHead, base_ref: str | None) -> list[Comparable]:
    """Return the failed jobs of a head that need comparing."""
    jobs: list[Comparable] = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        failing = {_attempt(job) for job in backend.failing[:MOST_COMPARED]}
        if not failing:
            continue
        facts = head.facts[key]
        base = head.view.base
        merge_base = base.sha if base and base.is_merge_base else None
        bases = frozenset(filter(None, (facts.dispatch["base_sha"], merge_base)))
        same = (key, facts.dispatch["base_ref"])  # on another base branch it may fail for good reason
        same_head = [
            row
            for recent in head.recent
            if (recent.dispatch["backend_key"], recent.dispatch["base_ref"]) == same
            for row in recent.jobs
        ]
        jobs += [
            Comparable(failed=Failed(job=row, base_ref=base_ref, base_shas=bases), same_head=same_head)
            for row in facts.jobs
            if _attempt_of(row) in failing and row["completed_at"] is not None
        ]
    return jobs


async def compare_jobs(tx: Transaction, wanted: Sequence[Comparable]) -> Comparison:
    """Compare failures; results of earlier comparisons come from the database."""
    known = await read_compared(tx, [comparable.failed.job["job_key"] for comparable in wanted])
    compared: dict[str, Compared] = {}
    fresh: list[ComparedRow] = []
    for comparable in wanted:
        job = comparable.failed.job
        row = known.get(job["job_key"])
        if row is None or row["completed_at"] != job["completed_at"]:
            row = await _compare_elsewhere(tx, comparable.failed)
            fresh.append(row)
        elsewhere = Compared(history=History(row["history"]), url=row["url"], elsewhere=row["elsewhere"])
        same_head = [other for other in reversed(comparable.same_head) if _name_of(other) == _name_of(job)]
        compared[job["job_key"]] = find_flaky(past_runs(same_head)) or elsewhere
    return Comparison(by_key=compared, fresh=fresh)


def with_histories(head: PullHead, compared: Mapping[str, Compared]) -> PullHead:
    """Return a head with the history of each failed job filled in."""
    if not compared:
        return head
    keys = {
        (key, _attempt_of(row)): row["job_key"] for key, facts in head.facts.items() for row in facts.jobs
    }
    backends = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        jobs = tuple(
            _with_history(job, compared.get(keys.get((key, _attempt(job)), ""))) for job in backend.jobs
        )
        backends.append(replace(backend, jobs=jobs))
    return replace(head, view=replace(head.view, backends=tuple(backends)))


def find_flaky(same_head: Sequence[PastRun]) -> Compared | None:
    """Call a failure flaky if the same head also passed, whatever happened elsewhere."""
    passed = next((past for past in same_head if past.conclusion == "success"), None)
    return Compared(history=History.FLAKY, url=passed.url) if passed else None


def compare_elsewhere(failed: PastRun, *, base: Sequence[PastRun], others: Sequence[PastRun]) -> Compared:
    """Classify a failure by earlier runs on other commits; the result never changes.

    The newest run on the base decides, unless other pull requests have failed alike since: the base may have broken
    after its last run.
    """
    judged = [past for past in base if past.red or past.conclusion == "success"]
    last = judged[0] if judged else None
    if last and last.red and _alike(failed, last):
        return Compared(history=History.KNOWN, url=last.url)
    since = [past for past in others if last is None or past.at > last.at]
    if (witness := _witness(failed, since)) is not None:
        return Compared(history=History.KNOWN, url=witness.url, elsewhere=True)
    if last is None:
        return Compared(history=History.NO_BASELINE)
    return Compared(history=History.NEW, url=None if last.red else last.url)


def past_runs(rows: Sequence[PastRow | JobRow]) -> list[PastRun]:
    """Return the runs that failures may be compared with, leaving out unverified ones."""
    return [past_run(row) for row in rows if not {"unverified", "refused"} & set(row["flags"])]


def past_run(row: PastRow | JobRow) -> PastRun:
    """Return how a stored job ended."""
    failed = row["failed_tests_json"] or ()
    tests: frozenset[Test] = frozenset((test.get("classname"), test["name"]) for test in failed)
    whole = bool(tests) and len(failed) >= (row["failed_tests"] or 0)
    return PastRun(
        conclusion=row["conclusion"],
        tests=tests if whole else None,
        at=row["completed_at"] or 0,
        url=row["workflow_run_url"],
        pull=row["pr_number"],
    )


def _about(job: JobRow, within: int, limit: int) -> dict[str, Any]:
    """Return the parameters that name the job that failed.

    Only runs that had ended before count: the comparison stays what it was when the job failed, so that no old check
    run is written again because of later runs elsewhere.
    """
    ended = job["completed_at"] or 0
    return {
        "name": job["job_name"],
        "workflow": job["workflow_name"],
        "after": ended - within,
        "until": ended,
        "downstream": job["downstream_repo"].lower(),
        "upstream": job["upstream_repo"].lower(),
        "key": job["job_key"],
        "most": limit,
    }


def _with_base(head: PullHead, base_ref: str | None, merge_base: MergeBase | None) -> PullHead:
    dispatched = [dispatch.dispatch for dispatch in head.facts.values() if dispatch.dispatch["base_sha"]]
    last = max(dispatched, key=lambda dispatch: dispatch["created_at"], default=None)
    ref = base_ref or (last and last["base_ref"]) or ""
    if merge_base and merge_base.sha:
        base = BaseCommit(
            ref=ref, sha=merge_base.sha, is_merge_base=True, committed_at=merge_base.committed_at
        )
    elif last and last["base_sha"]:
        base = BaseCommit(ref=ref, sha=last["base_sha"], is_merge_base=False)
    else:
        return head
    return replace(head, view=replace(head.view, base=base))


def _with_history(job: Job, compared: Compared | None) -> Job:
    if compared is None or not job.red:
        return job
    return replace(
        job, history=compared.history, evidence_url=compared.url, evidence_elsewhere=compared.elsewhere
    )


async def _compare_elsewhere(tx: Transaction, failed: Failed) -> ComparedRow:
    base = await past_on_base(tx, failed, within=BASE_AGE_MOST, limit=RUNS_ON_BASE)
    others = await past_on_other_pulls(tx, failed, within=ELSEWHERE_AGE_MOST, limit=RUNS_ELSEWHERE)
    compared = compare_elsewhere(past_run(failed.job), base=past_runs(base), others=past_runs(others))
    return {
        "job_key": failed.job["job_key"],
        "completed_at": failed.job["completed_at"] or 0,
        "history": str(compared.history),
        "url": compared.url,
        "elsewhere": compared.elsewhere,
    }


def _name_of(row: JobRow) -> tuple[str, str]:
    return row["workflow_name"], row["job_name"]


def _attempt(job: Job) -> tuple[str, int, str, str]:
    return job.run_id, job.run_attempt, job.workflow, job.name


def _attempt_of(row: JobRow) -> tuple[str, int, str, str]:
    return row["run_id"], row["run_attempt"], row["workflow_name"], row["job_name"]


def _alike(failed: PastRun, other: PastRun) -> bool:
    """Whether everything that failed here also failed there, judged by conclusion where tests were not reported."""
    if failed.tests is None or other.tests is None:
        return True
    return failed.tests <= other.tests


def _witness(failed: PastRun, others: Sequence[PastRun]) -> PastRun | None:
    """Return the newest run on another pull request that proves this change is not the cause.

    One run with the same failed tests is enough. Without tests a single failure proves little: the newest runs of
    several pull requests must then be red.
    """
    newest: dict[int | None, PastRun] = {}
    for past in others:
        newest.setdefault(past.pull, past)
    if failed.tests is not None:
        return next((past for past in newest.values() if past.red and past.shows(failed.tests)), None)
    first = list(newest.values())[:ENOUGH_OTHERS]
    return first[0] if len(first) == ENOUGH_OTHERS and all(past.red for past in first) else None
