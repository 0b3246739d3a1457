"""Comparison of failed jobs with the same jobs elsewhere: new, known, flaky.

Only what had ended when the job failed is compared, so the answer never changes afterwards. It explains a failure;
nothing here makes one green.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.oot.verdict import rows
from bot.oot.verdict.rows import Failed
from bot.oot.verdict.verdict import RED_CONCLUSIONS
from bot.oot.verdict.view import Base, History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.head import Head
    from bot.oot.verdict.rows import MergeBase, PastRow
    from bot.oot.verdict.tables import ComparedRow
    from bot.oot.verdict.view import Job

MOST_COMPARED = 30  # failing jobs of a backend that are compared
DAY = 86_400_000  # milliseconds
ON_BASE, ELSEWHERE = 30 * DAY, 7 * DAY  # maximum age of a run that a failure is compared with
RUNS_ON_BASE, RUNS_ELSEWHERE = 3, 10  # how many of them are read
ENOUGH_OTHERS = 2  # pull requests that fail alike, where failed tests were not reported

Test = tuple[str | None, str]  # classname, name


@dataclass(frozen=True, kw_only=True)
class Past:
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
    """What each failure is, by job key, and the rows of those that are not stored yet."""

    found: Mapping[str, Compared]
    fresh: Sequence[ComparedRow]


async def explain(tx: Transaction, head: Head, *, base_ref: str | None) -> Head:
    """Return a head with its base, and its failing jobs compared."""
    (based,) = await with_bases(tx, [head], base_ref=base_ref)
    found = await compare(tx, comparable(based, base_ref))
    return with_histories(based, found.found)


async def with_bases(tx: Transaction, heads: Sequence[Head], *, base_ref: str | None) -> list[Head]:
    """Return heads of one pull request with their bases, as far as these are known."""
    shas = [head.view.head_sha for head in heads]
    known = await rows.merge_bases(tx, heads[0].view.repo, shas, base_ref=base_ref or "") if heads else {}
    return [_with_base(head, base_ref, known.get(head.view.head_sha)) for head in heads]


def _with_base(head: Head, base_ref: str | None, merge_base: MergeBase | None) -> Head:
    dispatched = [one.dispatch for one in head.facts.values() if one.dispatch["base_sha"]]
    last = max(dispatched, key=lambda one: one["created_at"], default=None)
    ref = base_ref or (last and last["base_ref"]) or ""
    if merge_base and merge_base.sha:
        base = Base(ref=ref, sha=merge_base.sha, is_merge_base=True, committed_at=merge_base.committed_at)
    elif last and last["base_sha"]:
        base = Base(ref=ref, sha=last["base_sha"], is_merge_base=False)
    else:
        return head
    return replace(head, view=replace(head.view, base=base))


def comparable(head: Head, base_ref: str | None) -> list[Comparable]:
    """Return the failed jobs of a head that are to be compared."""
    found: list[Comparable] = []
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
            for one in head.recent
            if (one.dispatch["backend_key"], one.dispatch["base_ref"]) == same
            for row in one.jobs
        ]
        found += [
            Comparable(failed=Failed(job=row, base_ref=base_ref, base_shas=bases), same_head=same_head)
            for row in facts.jobs
            if _attempt_of(row) in failing and row["completed_at"] is not None
        ]
    return found


async def compare(tx: Transaction, wanted: Sequence[Comparable]) -> Comparison:
    """Compare failures; those compared before are taken from the database."""
    known = await rows.compared(tx, [one.failed.job["job_key"] for one in wanted])
    found: dict[str, Compared] = {}
    fresh: list[ComparedRow] = []
    for one in wanted:
        job = one.failed.job
        row = known.get(job["job_key"])
        if row is None or row["completed_at"] != job["completed_at"]:
            row = await _compare_elsewhere(tx, one.failed)
            fresh.append(row)
        elsewhere = Compared(history=History(row["history"]), url=row["url"], elsewhere=row["elsewhere"])
        same_head = [other for other in reversed(one.same_head) if _name_of(other) == _name_of(job)]
        found[job["job_key"]] = flaky(pasts(same_head)) or elsewhere
    return Comparison(found=found, fresh=fresh)


def with_histories(head: Head, found: Mapping[str, Compared]) -> Head:
    """Return a head with the results of comparing in its failed jobs."""
    if not found:
        return head
    keys = {
        (key, _attempt_of(row)): row["job_key"] for key, facts in head.facts.items() for row in facts.jobs
    }
    backends = []
    for backend in head.view.backends:
        key = backend.repo.casefold()
        jobs = tuple(
            _with_history(job, found.get(keys.get((key, _attempt(job)), ""))) for job in backend.jobs
        )
        backends.append(replace(backend, jobs=jobs))
    return replace(head, view=replace(head.view, backends=tuple(backends)))


def flaky(same_head: Sequence[Past]) -> Compared | None:
    """Return that a failure is flaky if the same head also passed, whatever happened elsewhere."""
    passed = next((past for past in same_head if past.conclusion == "success"), None)
    return Compared(history=History.FLAKY, url=passed.url) if passed else None


def compare_elsewhere(failed: Past, *, base: Sequence[Past], others: Sequence[Past]) -> Compared:
    """Classify a failure by earlier runs on other commits; the answer stays.

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


def pasts(rows: Sequence[PastRow | JobRow]) -> list[Past]:
    """Return the runs that may be compared with: not those that could not be verified."""
    return [past(row) for row in rows if not {"unverified", "refused"} & set(row["flags"])]


def past(row: PastRow | JobRow) -> Past:
    """Return how a stored job ended."""
    failed = row["failed_tests_json"] or ()
    tests: frozenset[Test] = frozenset((test.get("classname"), test["name"]) for test in failed)
    whole = bool(tests) and len(failed) >= (row["failed_tests"] or 0)
    return Past(
        conclusion=row["conclusion"],
        tests=tests if whole else None,
        at=row["completed_at"] or 0,
        url=row["workflow_run_url"],
        pull=row["pr_number"],
    )


def _with_history(job: Job, found: Compared | None) -> Job:
    if found is None or not job.red:
        return job
    return replace(job, history=found.history, evidence_url=found.url, evidence_elsewhere=found.elsewhere)


async def _compare_elsewhere(tx: Transaction, failed: Failed) -> ComparedRow:
    base = await rows.past_on_base(tx, failed, within=ON_BASE, limit=RUNS_ON_BASE)
    others = await rows.past_on_other_pulls(tx, failed, within=ELSEWHERE, limit=RUNS_ELSEWHERE)
    found = compare_elsewhere(past(failed.job), base=pasts(base), others=pasts(others))
    return {
        "job_key": failed.job["job_key"],
        "completed_at": failed.job["completed_at"] or 0,
        "history": str(found.history),
        "url": found.url,
        "elsewhere": found.elsewhere,
    }


def _name_of(row: JobRow) -> tuple[str, str]:
    return row["workflow_name"], row["job_name"]


def _attempt(job: Job) -> tuple[str, int, str, str]:
    return job.run_id, job.run_attempt, job.workflow, job.name


def _attempt_of(row: JobRow) -> tuple[str, int, str, str]:
    return row["run_id"], row["run_attempt"], row["workflow_name"], row["job_name"]


def _alike(failed: Past, other: Past) -> bool:
    """Whether everything that failed here failed there; by conclusion where tests were not reported."""
    if failed.tests is None or other.tests is None:
        return True
    return failed.tests <= other.tests


def _witness(failed: Past, others: Sequence[Past]) -> Past | None:
    """Return the newest run on another pull request that shows that this change is not the cause.

    One with the same failed tests is enough. Without tests a single failure proves little: then the newest runs of
    several pull requests must be red.
    """
    newest: dict[int | None, Past] = {}
    for past in others:
        newest.setdefault(past.pull, past)
    if failed.tests is not None:
        return next((past for past in newest.values() if past.red and past.shows(failed.tests)), None)
    first = list(newest.values())[:ENOUGH_OTHERS]
    return first[0] if len(first) == ENOUGH_OTHERS and all(past.red for past in first) else None
