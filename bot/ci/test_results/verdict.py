"""Whose failure is it? The verdict on a test that failed on a head, from what is known of it elsewhere.

Absence of data never takes a failure off its author's hands, and never puts it there either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BASELINE_COMMITS = 3
BASELINE_AGE = 7 * 24 * 3600 * 1000  # milliseconds, as all times here
ELSEWHERE_HEADS = 2
ELSEWHERE_AGE = 72 * 3600 * 1000


class Verdict(StrEnum):
    """What a failure is held to be, in order of precedence."""

    FLAKY = "flaky"  # it also passed in this job family on this head
    KNOWN = "known"  # it fails without the change, too
    DISABLED = "disabled"  # it is listed for this platform
    LIKELY_FLAKY = "likely_flaky"  # it also fails on heads that have nothing to do with this one
    NEW = "new"  # it passes without the change
    NEW_TEST = "new_test"  # no trusted run ever had it
    NO_BASELINE = "no_baseline"  # nothing to compare with


YOURS = frozenset({Verdict.NEW, Verdict.NEW_TEST})


class Baseline(StrEnum):
    """How the test ended in a run of its job family on a trusted commit."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"  # the family ran, the test did not, or was skipped


class TrustedRun(NamedTuple):
    """The newest run of a job family on a trusted commit."""

    sha: str
    at: int
    outcome: Baseline


class OtherFailure(NamedTuple):
    """A failure of the test in its job family on a head unrelated to this one."""

    head: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What rows say about a test that failed. By default they say nothing."""

    passed_on_head: bool = False  # in another attempt, re-run or in the same job
    merge_base: TrustedRun | None = None  # None: the family did not run there
    before: Sequence[TrustedRun] = ()  # trusted commits before the merge base, in any order
    disabled: bool = False
    flaky_state: bool = False  # in this environment
    elsewhere: Sequence[OtherFailure] = ()
    ever_trusted: bool = False  # some trusted run had this test


class Judged(NamedTuple):
    """A verdict, and the commits that prove it."""

    verdict: Verdict
    commits: tuple[str, ...] = ()

    @property
    def is_yours(self) -> bool | None:
        """Whether the change is to blame; None where nothing can be said."""
        return None if self.verdict is Verdict.NO_BASELINE else self.verdict in YOURS


def judge(evidence: Evidence, *, failed_at: int) -> Judged:
    """Return the verdict on a failure."""
    baseline = _baseline(evidence, failed_at)
    if excused := _excused(evidence, baseline, failed_at):
        return excused
    if passed := _commits(baseline, Baseline.PASSED):
        return Judged(Verdict.NEW, passed)
    if baseline and not _commits(baseline, Baseline.FAILED) and not evidence.ever_trusted:
        return Judged(Verdict.NEW_TEST)
    return Judged(Verdict.NO_BASELINE)


def _excused(evidence: Evidence, baseline: Sequence[TrustedRun], failed_at: int) -> Judged | None:
    """Return the verdict that takes a failure off its author's hands, if there is proof for one."""
    if evidence.passed_on_head:
        return Judged(Verdict.FLAKY)
    failed = _commits(baseline, Baseline.FAILED)
    if len(failed) * 2 > len(baseline):
        return Judged(Verdict.KNOWN, failed)
    if evidence.disabled:
        return Judged(Verdict.DISABLED)
    elsewhere = _elsewhere(evidence, failed_at)
    if evidence.flaky_state or len(elsewhere) >= ELSEWHERE_HEADS:
        return Judged(Verdict.LIKELY_FLAKY, elsewhere)
    return None


def _commits(baseline: Sequence[TrustedRun], outcome: Baseline) -> tuple[str, ...]:
    return tuple(run.sha for run in baseline if run.outcome is outcome)


def _baseline(evidence: Evidence, failed_at: int) -> Sequence[TrustedRun]:
    """Return the merge base's run, else those of the newest trusted commits before it."""
    if evidence.merge_base:
        return (evidence.merge_base,)
    recent = [run for run in evidence.before if failed_at - BASELINE_AGE <= run.at <= failed_at]
    return sorted(recent, key=lambda run: (run.at, run.sha), reverse=True)[:BASELINE_COMMITS]


def _elsewhere(evidence: Evidence, failed_at: int) -> tuple[str, ...]:
    """Return the unrelated heads on which it failed of late."""
    heads = {one.head for one in evidence.elsewhere if failed_at - ELSEWHERE_AGE <= one.at <= failed_at}
    return tuple(sorted(heads))
