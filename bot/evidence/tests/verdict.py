"""Whose failure is it? The verdict on a failing test, from other runs and from other devices. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.core import json_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

BASELINE_COMMITS = 3
BASELINE_AGE = 7 * 24 * 3600 * 1000  # milliseconds, as all times here
ELSEWHERE_HEADS = 2
ELSEWHERE_AGE = 72 * 3600 * 1000


class Verdict(StrEnum):
    """Whose failure it is, in order of precedence."""

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
    """What is known about a failed test; by default nothing."""

    passed_on_head: bool = False  # in another attempt, re-run or in the same job
    merge_base: TrustedRun | None = None  # None: the family did not run there
    before: Sequence[TrustedRun] = ()  # trusted commits before the merge base, in any order
    disabled: bool = False
    flaky_state: bool = False  # in this environment
    elsewhere: Sequence[OtherFailure] = ()
    ever_trusted: bool = False  # some trusted run had this test


class JudgedFailure(NamedTuple):
    """A verdict, and the commits that prove it."""

    verdict: Verdict
    commits: tuple[str, ...] = ()

    @property
    def is_yours(self) -> bool | None:
        """Whether the change is to blame; None if unknown."""
        return None if self.verdict is Verdict.NO_BASELINE else self.verdict in YOURS


class AcrossDevices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of the same test on the same commit of upstream; accelerators in order, backends by repository.

    Of a private repository nothing may be shown to others: the caller names the backends it may show.
    """

    upstream_id: int = 0  # upstream's repository; 0: it did not run there
    passed: Sequence[str] = ()  # upstream's accelerators on which it only passed
    failed: Sequence[str] = ()  # on which it failed
    failed_on: Sequence[int] = ()  # repositories of backends
    passed_on: Sequence[int] = ()


json_fields.learn(AcrossDevices)


NOWHERE = AcrossDevices()


def judge(evidence: Evidence, *, failed_at: int) -> JudgedFailure:
    """Return the verdict on a failure."""
    baseline = _baseline(evidence, failed_at)
    if excused := _excused(evidence, baseline, failed_at):
        return excused
    if passed := _commits(baseline, Baseline.PASSED):
        return JudgedFailure(Verdict.NEW, passed)
    if baseline and not _commits(baseline, Baseline.FAILED) and not evidence.ever_trusted:
        return JudgedFailure(Verdict.NEW_TEST)
    return JudgedFailure(Verdict.NO_BASELINE)


def describe_devices(across: AcrossDevices, names: Mapping[int, str]) -> str:
    """Say where a test fails and passes; empty if there is nothing to compare. `names` holds what may be shown.

    >>> describe_devices(AcrossDevices(upstream_id=1, passed=["cpu", "cuda"], failed_on=[2]), {1: "upstream", 2: "npu"})
    'fails on npu, passes upstream (cpu, cuda)'
    """
    failing = join_names(
        sorted({names[backend] for backend in across.failed_on if backend in names}, key=str.casefold)
    )
    upstream = describe_upstream(across) if across.upstream_id in names else ""
    if not failing:
        return upstream
    return ", ".join(part for part in (f"fails on {failing}", upstream) if part)


def describe_upstream(across: AcrossDevices) -> str:
    """Say how the test did in upstream's own jobs."""
    if across.failed:
        only = f" ({', '.join(across.failed)})"
        return f"fails upstream too{only if any(across.failed) else ''}"
    if across.passed:
        only = f" ({', '.join(across.passed)})"
        return f"passes upstream{only if any(across.passed) else ''}"
    return ""


def is_only_here(across: AcrossDevices) -> bool:
    """Whether the test passes in upstream's own jobs and fails on a backend."""
    return bool(across.passed) and not across.failed and bool(across.failed_on)


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def compare_devices(
    upstream_id: int, upstream: Mapping[str, Collection[bool]], backends: Mapping[int, Collection[bool]]
) -> AcrossDevices:
    """Compare a test across upstream's accelerators and backends, given whether it passed in each of their jobs."""
    ran = {device or "": passed for device, passed in upstream.items() if passed}
    return AcrossDevices(
        upstream_id=upstream_id if ran else 0,
        passed=sorted(device for device, passed in ran.items() if all(passed)),
        failed=sorted(device for device, passed in ran.items() if not all(passed)),
        failed_on=sorted(backend for backend, passed in backends.items() if passed and not all(passed)),
        passed_on=sorted(backend for backend, passed in backends.items() if passed and all(passed)),
    )


def _excused(evidence: Evidence, baseline: Sequence[TrustedRun], failed_at: int) -> JudgedFailure | None:
    """Return the verdict that clears the author of a failure, if there is proof for one."""
    if evidence.passed_on_head:
        return JudgedFailure(Verdict.FLAKY)
    failed = _commits(baseline, Baseline.FAILED)
    if len(failed) * 2 > len(baseline):
        return JudgedFailure(Verdict.KNOWN, failed)
    if evidence.disabled:
        return JudgedFailure(Verdict.DISABLED)
    elsewhere = _elsewhere(evidence, failed_at)
    if evidence.flaky_state or len(elsewhere) >= ELSEWHERE_HEADS:
        return JudgedFailure(Verdict.LIKELY_FLAKY, elsewhere)
    return None


def _commits(baseline: Sequence[TrustedRun], outcome: Baseline) -> tuple[str, ...]:
    return tuple(run.sha for run in baseline if run.outcome is outcome)


def _baseline(evidence: Evidence, failed_at: int) -> Sequence[TrustedRun]:
    """Return the run on the merge base, else the runs on the newest trusted commits before it."""
    if evidence.merge_base:
        return (evidence.merge_base,)
    recent = [run for run in evidence.before if failed_at - BASELINE_AGE <= run.at <= failed_at]
    return sorted(recent, key=lambda run: (run.at, run.sha), reverse=True)[:BASELINE_COMMITS]


def _elsewhere(evidence: Evidence, failed_at: int) -> tuple[str, ...]:
    """Return the unrelated heads on which the test failed recently."""
    heads = {
        failure.head for failure in evidence.elsewhere if failed_at - ELSEWHERE_AGE <= failure.at <= failed_at
    }
    return tuple(sorted(heads))
