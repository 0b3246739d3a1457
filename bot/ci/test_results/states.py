"""Is a test flaky or broken, by what trusted runs said of it? With hysteresis: no state flips at every run. Pure.

States are of a test in a group of environments. A reset by people makes a test healthy; nothing before it counts.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY = 86_400_000  # milliseconds, as all times here
WINDOW = 7 * DAY
FLAKY_JOBS = 2  # in the window
RATE_RUNS = 20  # in the window, before a failure rate says anything
RATE_FAILURES = 3  # with a pass between each
RATE_MOST = 0.5
BROKEN_RUNS = 3  # the newest ones
QUIET_TIME = 14 * DAY  # without an event, until a flaky test is healthy again
QUIET_RUNS = 100
SAMPLES = 5  # jobs named as evidence


class State(StrEnum):
    """How a test does."""

    HEALTHY = "healthy"
    FLAKY = "flaky"
    BROKEN = "broken"
    QUARANTINED = "quarantined"  # people said so, and only they take it back


class Observation(NamedTuple):
    """What a trusted job said of the test."""

    at: int
    job_id: int
    sha: str
    job_family: str
    failed: bool
    flaky: bool = False  # within the job


class Judged(NamedTuple):
    """A state, since when, and why."""

    state: State
    since: int
    evidence: dict[str, Any]


def evaluate(seen: Sequence[Observation], before: Judged | None, *, now: int) -> Judged:
    """Return the state of a test by its observations, in any order."""
    if before and before.state is State.QUARANTINED:
        return before
    reset = before.evidence.get("reset", 0) if before else 0
    ordered = sorted((one for one in seen if reset < one.at <= now), key=lambda one: (one.at, one.job_id))
    recent = [one for one in ordered if one.at > now - WINDOW]
    found = _broken(ordered) or _flaky_jobs(recent) or _rate(recent)
    kept = {"reset": reset} if reset else {}
    if found is None:
        if before and before.state is State.FLAKY and not _is_quiet(ordered, now):
            return before
        if before and before.state is State.BROKEN and not _is_mended(ordered):
            return before
        since = before.since if before and before.state is State.HEALTHY else now
        return Judged(State.HEALTHY, since if before else _first(ordered, now), kept)
    if before and before.state is found.state:
        return Judged(found.state, min(before.since, found.since), kept | found.evidence)
    return Judged(found.state, found.since, kept | found.evidence)


def reset(at: int) -> Judged:
    """Return the state of a test that people call mended."""
    return Judged(State.HEALTHY, at, {"reset": at})


def _first(ordered: Sequence[Observation], now: int) -> int:
    return ordered[0].at if ordered else now


def _broken(ordered: Sequence[Observation]) -> Judged | None:
    """Return BROKEN where the newest runs failed, all of them."""
    failing = 0
    for one in reversed(ordered):
        if not one.failed:
            break
        failing += 1
    if failing < BROKEN_RUNS:
        return None
    run = ordered[-failing:]
    return Judged(State.BROKEN, run[0].at, {"failed": failing, "jobs": _jobs(run)})


def _is_mended(ordered: Sequence[Observation]) -> bool:
    newest = ordered[-BROKEN_RUNS:]
    return len(newest) == BROKEN_RUNS and not any(one.failed for one in newest)


def _flaky_jobs(recent: Sequence[Observation]) -> Judged | None:
    """Return FLAKY where the test passed and failed in a job, or in jobs of a family on one commit, twice."""
    found = _events(recent)
    if len({one.job_id for one in found}) < FLAKY_JOBS:
        return None
    return Judged(State.FLAKY, found[0].at, {"flaky": len(found), "runs": len(recent), "jobs": _jobs(found)})


def _events(seen: Sequence[Observation]) -> list[Observation]:
    """Return the jobs in which the test was flaky, or failed where another one on the commit passed."""
    outcomes: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for one in seen:
        outcomes[one.sha, one.job_family].add(one.failed)
    return [one for one in seen if one.flaky or (one.failed and len(outcomes[one.sha, one.job_family]) > 1)]


def _rate(recent: Sequence[Observation]) -> Judged | None:
    """Return FLAKY where it fails now and then."""
    failed = [one for one in recent if one.failed]
    separate = sum(
        one.failed and (index == 0 or not recent[index - 1].failed) for index, one in enumerate(recent)
    )
    enough = len(recent) >= RATE_RUNS and separate >= RATE_FAILURES
    if not enough or len(failed) >= RATE_MOST * len(recent):
        return None
    evidence = {"failed": len(failed), "runs": len(recent), "jobs": _jobs(failed)}
    return Judged(State.FLAKY, failed[0].at, evidence)


def _is_quiet(ordered: Sequence[Observation], now: int) -> bool:
    """Whether nothing happened for long enough."""
    events = {*_events(ordered), *(one for one in ordered if one.failed)}
    if not events:
        return True
    newest = max(one.at for one in events)
    return newest <= now - QUIET_TIME or sum(one.at > newest for one in ordered) >= QUIET_RUNS


def _jobs(seen: Sequence[Observation]) -> list[int]:
    return [one.job_id for one in seen[-SAMPLES:]]
