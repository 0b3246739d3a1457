"""Cells of the grid: all runs of one job on one commit, shown as one character."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.jobs.tables import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# what the database holds: a number for each status and conclusion of GitHub, in this order
STATES = ("queued", "waiting", "in_progress", "completed")
CONCLUSIONS = (
    "", "success", "failure", "timed_out", "cancelled", "neutral", "skipped", "startup_failure", "action_required",
    "stale", "other",
    "allowed",  # never stored: a failure in a run that succeeded, see `commit_cells`
)  # fmt: skip

SUCCESS, FLAKY, FAILURE, TIMED_OUT, CANCELLED = "O", "F", "X", "T", "C"
NEUTRAL, SKIPPED, QUEUED, PENDING, OTHER = "N", "S", "Q", "?", "U"
ALLOWED = "A"  # a failure that the workflow allows
NONE_YET = "~"  # no such job yet, while its run is unfinished
BLANK = ""
PASSED, FAILED = frozenset((SUCCESS, FLAKY)), frozenset((FAILURE, TIMED_OUT))
GREEN = PASSED | {ALLOWED, NEUTRAL, SKIPPED}  # what the jobs of a green commit may show
UNFINISHED = frozenset((QUEUED, PENDING, NONE_YET))
WORDS = {
    SUCCESS: "success", FLAKY: "success after a failure", FAILURE: "failure", TIMED_OUT: "timed out",
    CANCELLED: "cancelled", NEUTRAL: "neutral", SKIPPED: "skipped", QUEUED: "queued", PENDING: "running",
    OTHER: "unknown outcome", NONE_YET: "not started yet", ALLOWED: "failure, which is allowed",
}  # fmt: skip
# of several shards, or several columns of a group, the one that is shown
WORST = (
    FAILURE, TIMED_OUT, PENDING, QUEUED, NONE_YET, CANCELLED, ALLOWED, FLAKY, SUCCESS, NEUTRAL, SKIPPED, OTHER,
)  # fmt: skip
_RANKS = {
    "success": 0,
    "allowed": 1,
    "failure": 2, "timed_out": 2, "startup_failure": 2, "action_required": 2,
    "queued": 3, "pending": 3,
    "neutral": 4, "skipped": 5, "cancelled": 6,
}  # fmt: skip
_LAST_RANK = 7
_CHARACTERS = {
    "success": SUCCESS, "failure": FAILURE, "timed_out": TIMED_OUT, "startup_failure": FAILURE,
    "action_required": FAILURE, "queued": QUEUED, "pending": PENDING, "neutral": NEUTRAL, "skipped": SKIPPED,
    "cancelled": CANCELLED, "allowed": ALLOWED,
}  # fmt: skip
INFRA = "infra"  # the kind of failure that is not the code's
NO_FAILURE: Failure = {
    "signature": None, "line": None, "tests_failed": None, "failed_tests": None, "failure_kind": None,
}  # fmt: skip
TESTS_MOST = 20  # that failed, of a cell
_EVIDENCE = frozenset(("failure", "timed_out", "allowed"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """A cell with all its runs."""

    cell: Cell
    runs: tuple[Run, ...]  # the one that decides first, then failures, then the newest


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a job on a commit: a first attempt, a retry, a repeat, of upstream or of a backend."""

    id: str  # of the job where it runs; decimal on GitHub
    status: str
    conclusion: str
    attempt: int = 1
    event: str = ""
    actor: str = ""  # who started it by hand
    shard: int = 0
    shards: int = 0
    twin: int = 0  # which of several jobs of its name it is
    started_at: int | None = None  # epoch milliseconds, as the next one
    completed_at: int | None = None
    failure: Failure | None = None  # why it failed, where its log or its test results were read
    url: str | None = None  # where a backend's job is shown
    run_id: int = 0  # of upstream's workflow run

    @property
    def outcome(self) -> str:
        """The conclusion; without one, whether the run is queued or pending."""
        return _outcome(self.status, self.conclusion)

    @property
    def line(self) -> str | None:
        """The line that says why it failed."""
        return self.failure and self.failure["line"]

    @property
    def origin(self) -> str:
        """What started it."""
        by = f" by {self.actor}" if self.actor else ""
        if self.attempt > 1:
            return f"attempt {self.attempt}{by}"
        return f"dispatched{by}" if self.event == "workflow_dispatch" else self.event

    @property
    def seconds(self) -> float | None:
        """How long it ran; None where that is unknown, or the clocks contradict each other."""
        if self.started_at is None or self.completed_at is None or self.completed_at < self.started_at:
            return None
        return (self.completed_at - self.started_at) / 1000

    @property
    def failed(self) -> bool:
        """Whether the run proves that the job can fail: a cancelled one does not."""
        return self.conclusion in _EVIDENCE


class Cell(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What a column shows on one commit. Stored with the fields in this order: add a new one last, with a default."""

    character: str
    job: int | str | None = None  # of the run that decides, or the failed one of a pass on a second try
    completed_at: int | None = None  # when the run that decides ended
    count: tuple[int, int] | None = None  # shards, and jobs of the same name, like this, and all of these
    failure: Failure | None = None  # why it failed; of several shards with the failed tests of all that did
    kind: str | None = None  # of the failure, where all its runs and shards that failed agree on one
    # of shards: when the first of those like this ended, and the last of all
    span: tuple[int, int] | None = None

    @property
    def line(self) -> str | None:
        """The line that says why it failed."""
        return self.failure and self.failure["line"]

    @property
    def signature(self) -> str | None:
        """The signature of that failure."""
        return self.failure and self.failure["signature"]

    @property
    def tests_failed(self) -> int | None:
        """How many tests failed."""
        return self.failure and self.failure["tests_failed"]

    @property
    def failed_tests(self) -> str | None:
        """Some of these tests: see `store.job_causes`."""
        return self.failure and self.failure["failed_tests"]

    @property
    def first_ended_at(self) -> int | None:
        """When its result was certain: of several shards, when the first of the deciding ones ended."""
        return self.span[0] if self.span else self.completed_at

    @property
    def last_ended_at(self) -> int | None:
        """When its last run ended."""
        return self.span[1] if self.span else self.completed_at

    @property
    def passed(self) -> bool:
        """Whether the job passed on this commit, perhaps on a second try."""
        return self.character in PASSED

    @property
    def good(self) -> bool:
        """Whether the job passed on this commit, or failed as its workflow allows."""
        return self.character in PASSED or self.character == ALLOWED

    @property
    def broken(self) -> bool:
        """Whether it failed or timed out, and its workflow does not allow that."""
        return self.character in FAILED

    @property
    def fails(self) -> bool:
        """Whether any of its runs failed, even where a second one passed."""
        return self.broken or self.character == FLAKY

    @property
    def infra(self) -> bool:
        """Whether it failed, with the infrastructure as the only known reason."""
        return self.kind == INFRA and self.broken


def character(status: str, conclusion: str) -> str:
    """Return the character of a single run."""
    return _CHARACTERS.get(_outcome(status, conclusion), OTHER)


def cell(runs: Iterable[Run]) -> Cell:
    """Return the cell of all runs of one job on one commit."""
    return details(runs).cell


def joined_tests(names: Iterable[str | None]) -> str | None:
    """Join the failed tests of several runs, comma separated; too many are cut, always in the same way."""
    tests = {test for each in names if each for test in each.split(",")}
    return ",".join(sorted(tests)[:TESTS_MOST]) or None


def details(runs: Iterable[Run]) -> Details:
    """Return the cell of all runs of one job on one commit: that of its worst shard.

    Several jobs of one name count as shards of it.
    """
    by_shard: defaultdict[tuple[int, int], list[Run]] = defaultdict(list)
    for run in runs:
        by_shard[run.shard, run.twin].append(run)
    shards = [_shard_details(each) for _, each in sorted(by_shard.items())]
    if len(shards) == 1:
        return shards[0]
    worst = min((each.cell.character for each in shards), key=WORST.index)
    alike = [each for each in shards if each.cell.character == worst]
    first = max(alike, key=lambda each: _order(each.runs[0]))
    others = [run for each in shards for run in each.runs if run is not first.runs[0]]
    return Details(
        cell=msgspec.structs.replace(
            first.cell,
            count=(len(alike), len(shards)),
            failure=_joined_failure(first.cell.failure, [each.cell for each in alike]),
            kind=_agreed(each.cell.kind for each in shards if each.cell.broken),
            span=_span(alike, shards),
        ),
        runs=(first.runs[0], *sorted(others, key=_detail_order)),
    )


def _joined_failure(first: Failure | None, alike: Sequence[Cell]) -> Failure | None:
    """Return the failure of the first of several shards, with the failed tests of all."""
    counts = [each.tests_failed for each in alike if each.tests_failed is not None]
    failure: Failure = {
        **(first or NO_FAILURE),
        "tests_failed": sum(counts) if counts else None,
        "failed_tests": joined_tests(each.failed_tests for each in alike),
    }
    return failure if failure != NO_FAILURE else None


def _span(alike: Iterable[Details], shards: Iterable[Details]) -> tuple[int, int] | None:
    first = [each.cell.completed_at for each in alike if each.cell.completed_at is not None]
    last = [each.cell.completed_at for each in shards if each.cell.completed_at is not None]
    return (min(first), max(last)) if first else None


def _shard_details(runs: Sequence[Run]) -> Details:
    finished = [run for run in runs if run.outcome != "cancelled"] or runs
    best = min(_RANKS.get(run.outcome, _LAST_RANK) for run in finished)
    decisive = max((run for run in finished if _RANKS.get(run.outcome, _LAST_RANK) == best), key=_order)
    others = sorted((run for run in runs if run is not decisive), key=_detail_order)
    shown, chosen = _CHARACTERS.get(decisive.outcome, OTHER), decisive
    if shown == SUCCESS and (failed := [run for run in others if run.failed]):
        shown, chosen = FLAKY, failed[0]
    made = Cell(
        character=shown,
        job=_job(chosen.id),
        failure=chosen.failure,
        completed_at=decisive.completed_at,
        kind=_agreed(
            run.failure and run.failure["failure_kind"]
            for run in runs
            if _CHARACTERS.get(run.outcome) in FAILED
        ),
    )
    return Details(cell=made, runs=(decisive, *others))


def _agreed(kinds: Iterable[str | None]) -> str | None:
    """Return the kind that all failures share; one without a log may be of any kind."""
    distinct = set(kinds)
    return distinct.pop() if len(distinct) == 1 else None


def _outcome(status: str, conclusion: str) -> str:
    if conclusion:
        return conclusion
    return "queued" if status in {"queued", "waiting"} else "pending"


def _order(run: Run) -> tuple[int, str, int, int, str, str, str]:
    """The greatest numeric id decides, then the last attempt, then the greatest text; other ids lose."""
    number = int(run.id) if _is_number(run.id) else -1
    return (number, run.id, run.run_id, run.attempt, run.event, run.conclusion, run.url or "")


def _detail_order(run: Run) -> tuple[bool, int, str, int, int, str, str, str]:
    number, text, run_id, attempt, *texts = _order(run)
    return (not run.failed, -number, text, -run_id, -attempt, texts[0], texts[1], texts[2])


def _job(text: str) -> int | str | None:
    """Return the id of a job: GitHub's as a number, another CI's as it is."""
    return int(text) if _is_number(text) and len(text) < 16 else text or None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20
