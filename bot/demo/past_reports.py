"""What the backends did in the month before the demo: the dispatches of past pull requests, and their jobs.

A backend that became slower, one that is flaky, one that fell silent. `ootbot demo` writes them into the database
before the bot starts, as it would have written them then: reports count for the day on which they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.demo import participants
from bot.demo.github import payloads
from bot.demo.participants import FPGA, NPU, RISCV, TPU, WATCHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.backends import FailedTest
    from bot.demo.github import SimulatedGitHub
    from bot.demo.github.models import Event, Pull, Run

MINUTE, DAY = 60_000, 86_400_000
SILENT_FOR = 9 * DAY  # the FPGA's CI has not answered since
SLOWER_FOR = 8 * DAY  # since when the NPU's tests take longer
BUSY_FOR = 5 * DAY  # since when the TPU's jobs wait longer
CONFIRMED = 12  # newest pull requests whose runs GitHub tells of: a blocking backend is green only then

VARIANCE: FailedTest = {
    "name": "test_var", "classname": "TestReductions", "file": "test/test_reductions.py", "line": 388,
    "message": "AssertionError: 0.4375 != 0.4329: the variance of bfloat16 is rounded twice",
}  # fmt: skip
HOOKS: FailedTest = {
    "name": "test_hooks", "classname": "TestAutograd", "file": "test/test_autograd.py", "line": 1204,
    "message": "RuntimeError: the device was lost while a hook ran",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A job of a backend's workflow."""

    repo: str
    level: int
    device: str | None
    name: str
    minutes: int
    tests: int


@dataclass(frozen=True, kw_only=True)
class PastJob:
    """One job as it was reported."""

    kind: Kind
    run_id: int
    url: str
    conclusion: str
    waited: int  # milliseconds
    ran: int  # milliseconds
    failed: tuple[FailedTest, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PastDispatch:
    """One dispatch of a commit to a backend, and the jobs that answered it."""

    backend: str
    level: int
    device: str | None
    silent: bool  # it was not answered in time
    jobs: tuple[PastJob, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PastHead:
    """A commit of a pull request, and what it was dispatched to."""

    pull: Pull
    sha: str
    first: bool  # the pull request was opened with it
    at: int
    dispatches: tuple[PastDispatch, ...]


KINDS = (
    Kind(repo=RISCV, level=2, device=None, name="test", minutes=14, tests=516),
    Kind(repo=FPGA, level=2, device=None, name="synthesis", minutes=48, tests=96),
    Kind(repo=NPU, level=3, device="npu", name="test", minutes=31, tests=3_151),
    Kind(repo=TPU, level=4, device="tpu", name="build", minutes=12, tests=0),
    Kind(repo=TPU, level=4, device="tpu", name="test", minutes=42, tests=8_452),
)


def make_past(github: SimulatedGitHub, pulls: Sequence[Pull], *, now: int) -> list[PastHead]:
    """Return each commit of past pull requests with what backends reported on it, oldest first."""
    pushed = [
        (github.state.repo(participants.UPSTREAM).commits[sha].at, pull, sha)
        for pull in pulls
        for sha in pull.commits
    ]
    return [
        PastHead(
            pull=pull,
            sha=sha,
            first=sha == pull.commits[0],
            at=at,
            dispatches=tuple(_dispatches(github, number, at, age=now - at)),
        )
        for number, (at, pull, sha) in enumerate(sorted(pushed, key=lambda one: one[0]))
    ]


def confirmations(github: SimulatedGitHub, heads: Sequence[PastHead]) -> Iterator[Event]:
    """Yield what GitHub tells of the blocking backend's runs on the last commits of the newest pull requests."""
    runs = github.state.repo(TPU).runs
    last = [head for head in heads if head.sha == head.pull.head_sha]
    for head in last[-CONFIRMED:]:
        numbers = {job.run_id for one in head.dispatches for job in one.jobs if one.backend == TPU}
        for number in sorted(numbers):
            yield payloads.workflow_run(github.state, runs[number], "completed")


def _dispatches(github: SimulatedGitHub, number: int, at: int, *, age: int) -> Iterator[PastDispatch]:
    yield PastDispatch(backend=WATCHER, level=1, device=None, silent=False)
    for repo in dict.fromkeys(kind.repo for kind in KINDS):
        kinds = [kind for kind in KINDS if kind.repo == repo]
        silent = repo == FPGA and age < SILENT_FOR
        run = None if silent else _run(github, repo, at)
        yield PastDispatch(
            backend=repo,
            level=kinds[0].level,
            device=kinds[0].device,
            silent=silent,
            jobs=tuple(_job(github, run, kind, number, age) for kind in kinds) if run else (),
        )


def _run(github: SimulatedGitHub, repo: str, at: int) -> Run:
    """Create the run on GitHub that a dispatch started then."""
    state = github.state
    run = github.queued_run(
        state.repo(repo),
        workflow=state.workflow(state.repo(repo), "CI"),
        event="repository_dispatch",
        actor="ootbot[bot]",
    )
    run.created_at = run.started_at = run.updated_at = at
    run.status, run.conclusion = "completed", "success"
    return run


def _job(github: SimulatedGitHub, run: Run, kind: Kind, number: int, age: int) -> PastJob:
    """Return what a job did; the numbers differ from commit to commit, by arithmetic and not by chance."""
    conclusion, failed = _outcome(kind, number, age)
    slower = 1.7 if kind.repo == NPU and age < SLOWER_FOR else 1.0
    ran = round(kind.minutes * MINUTE * slower * (90 + number * 7 % 25) / 100)
    waited = (20 + number * 37 % 160) * 1000
    if kind.repo == TPU:
        waited = waited * 3 if age >= BUSY_FOR else waited * 11
    began = run.created_at + waited
    ended = began + ran
    github.past_job(
        run,
        kind.name,
        ("self-hosted", kind.repo),
        conclusion=conclusion,
        times=(run.created_at, began, ended),
    )
    run.updated_at = max(run.updated_at, ended)
    if conclusion != "success":
        run.conclusion = "failure"
    return PastJob(
        kind=kind,
        run_id=run.id,
        url=f"{github.url}/{run.repo.full_name}/actions/runs/{run.id}",
        conclusion=conclusion,
        waited=waited,
        ran=ran,
        failed=failed,
    )


def _outcome(kind: Kind, number: int, age: int) -> tuple[str, tuple[FailedTest, ...]]:
    """Return how a job ended, and which tests failed."""
    if kind.repo == FPGA and number % 3 == 1:
        return "failure", ()
    if kind.repo == NPU and (number % 7 == 3 or (12 * DAY < age < 15 * DAY and number % 2)):
        return "failure", (VARIANCE,)
    if kind.repo == TPU and kind.name == "test" and number % 17 == 5:
        return "failure", (HOOKS,)
    if kind.repo == TPU and kind.name == "test" and number % 41 == 20:
        return "timed_out", ()
    if kind.repo == RISCV and number % 23 == 9:
        return "cancelled", ()
    return "success", ()
