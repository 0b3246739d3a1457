"""A month of pushes to upstream's main and what its own CI said of them, for the grid.

A breakage that was mended, flakes, an outage, a hang, a commit whose jobs still run; and a backend that broke at one
commit and still is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.demo import (
    buildkite,
    job_documents,
    job_logs,
    participants,
    past_contributions,
    past_reports,
    test_reports,
    usage_logs,
)
from bot.demo.github import git, payloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.backends import FailedTest
    from bot.demo.environment import Environment
    from bot.demo.github import SimulatedGitHub
    from bot.demo.github.models import Event, Pull, Repo, Run, WorkflowJob
    from bot.demo.past_reports import PastHead

MINUTE, HOUR = 60_000, 3_600_000
PUSHES, BETWEEN = 40, 18 * HOUR
NEWEST = 12 * MINUTE  # the age of the newest push: some of its jobs still run
BREAKAGE = range(14, 19)  # pushes, the oldest is 0; the one after reverts the first
HANG, OUTAGE, FLAKES, CANCELLED = 8, 27, {23: 2, 31: 1}, 10  # FLAKES: push -> shard
# a backend passed on the first of these at night, and failed on the last, and on those after it; it broke in between
BACKEND_GOOD, BACKEND_BROKE, BACKEND_BAD = 21, 30, 36
RELEASE, RELEASED = "release/2.9", 25  # a branch, and the push after which it was made
NIGHTLY, NIGHTLY_JOB = "Nightly", "test (vector)"
REPORTED = range(
    PUSHES - 5, PUSHES - 1
)  # pushes whose tests on GPUs have reports; on every second one a test is flaky
DOCUMENTED = range(PUSHES - 24, PUSHES - 1)  # pushes whose builds and tests on GPUs left documents
# pushes on whose first tests on GPUs a monitor ran: as many as charts of a month need
MEASURED = frozenset((*DOCUMENTED, *range(0, DOCUMENTED.start, 3)))
MEASURED_EVERY = 120  # seconds between two of its records
LINUX, BIG, GPU, MAC, WINDOWS = (
    "linux.2xlarge",
    "linux.4xlarge",
    "linux.g5.4xlarge",
    "macos-m2-15",
    "windows.4xlarge",
)
LABELS = {"ubuntu": ("ubuntu-latest",)} | {
    each: ("self-hosted", each) for each in (LINUX, BIG, GPU, MAC, WINDOWS)
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A job of upstream's workflows."""

    workflow: str
    name: str  # with {} for the shard's number
    runner: str
    minutes: int
    shards: int = 1


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One attempt of a job on one push, the oldest of which is 0."""

    kind: Kind
    shard: int
    number: int
    conclusion: str
    failed: FailedTest | None


JOBS = (
    Kind(workflow="Lint", name="lintrunner / linux-job", runner="ubuntu", minutes=9),
    Kind(workflow="Lint", name="quick-checks / linux-job", runner="ubuntu", minutes=4),
    Kind(workflow="Lint", name="Test tools", runner="ubuntu", minutes=3),
    Kind(workflow="pull", name="linux-jammy-py3.10-gcc11 / build", runner=LINUX, minutes=18),
    Kind(
        workflow="pull",
        name=f"linux-jammy-py3.10-gcc11 / test (default, {{}}, 3, {LINUX})",
        runner=LINUX,
        minutes=55,
        shards=3,
    ),
    Kind(
        workflow="pull",
        name=f"linux-jammy-py3.10-gcc11 / test (docs_test, 1, 1, {LINUX})",
        runner=LINUX,
        minutes=12,
    ),
    Kind(workflow="pull", name="linux-jammy-cuda12.8-py3.10 / build", runner=BIG, minutes=41),
    Kind(
        workflow="pull",
        name=f"linux-jammy-cuda12.8-py3.10 / test (default, {{}}, 2, {GPU})",
        runner=GPU,
        minutes=84,
        shards=2,
    ),
    Kind(workflow="trunk", name="linux-jammy-rocm-py3.10 / build", runner=BIG, minutes=38),
    Kind(workflow="trunk", name="macos-py3-arm64 / build", runner=MAC, minutes=22),
    Kind(
        workflow="trunk",
        name=f"macos-py3-arm64 / test (default, {{}}, 2, {MAC})",
        runner=MAC,
        minutes=47,
        shards=2,
    ),
    Kind(workflow="trunk", name="win-vs2022-cpu-py3 / build", runner=WINDOWS, minutes=64),
    Kind(
        workflow="trunk",
        name=f"win-vs2022-cpu-py3 / test (default, 1, 1, {WINDOWS})",
        runner=WINDOWS,
        minutes=70,
    ),
    Kind(workflow="docs", name="build-docs (python)", runner=LINUX, minutes=16),
)
TITLES = (
    "Fold constants before fusing pointwise kernels", "Skip empty batches in the data loader",
    "Document the deterministic mode of scatter_add", "Use one allocator for all streams of a device",
    "Raise a clear error for mismatched dtypes", "Share the cache of compiled graphs between processes",
    "Bump the pinned version of the linter", "Make the profiler's traces smaller",
)  # fmt: skip
BREAKING = "Vectorize the reduction on Apple silicon"
NORM: FailedTest = {
    "name": "test_norm_large_input", "classname": "TestReductions", "file": "test/test_reductions.py", "line": 431,
    "message": "AssertionError: 65504.0 != inf: the sum of squares overflows",
}  # fmt: skip
POOL: FailedTest = {
    "name": "test_graph_pool_release", "classname": "TestCuda", "file": "test/test_cuda.py", "line": 2117,
    "message": "RuntimeError: the memory pool is still in use by another thread",
}  # fmt: skip
NO_HOST = "##[error]fatal: unable to access the repository: Could not resolve host: github.com"


@dataclass(frozen=True, kw_only=True)
class History:
    """What happened, as GitHub told of it, and what a backend found out about each commit at night."""

    events: Sequence[Event]
    commits: Sequence[str]  # oldest first

    @property
    def backend_results(self) -> dict[str, bool]:
        """Whether the backend's tests passed, by commit; for two weeks it did not run, nor on the newest one yet."""
        return {
            sha: at < BACKEND_BROKE
            for at, sha in enumerate(self.commits[:-1])
            if (at % 2 and at <= BACKEND_GOOD) or at >= BACKEND_BAD
        }


@dataclass(frozen=True, kw_only=True)
class Month:
    """Upstream's pushes, the pull requests they came from, and what backends reported on these."""

    trunk: History
    pulls: Sequence[Pull]
    reported: Sequence[PastHead]


def make_month(github: SimulatedGitHub) -> Month:
    """Make up what came before the demo; sends nothing."""
    now = github.state.now()
    trunk = make_history(github, participants.UPSTREAM, now=now)
    pulls = past_contributions.make_pulls(github, trunk.commits)
    return Month(trunk=trunk, pulls=pulls, reported=past_reports.make_past(github, pulls, now=now))


async def send_history(environment: Environment) -> History:
    """Have the bot hear of it all, and of what a backend found out about these commits at night."""
    github, repo = environment.github, environment.github.state.repo(participants.UPSTREAM)
    month = environment.month or make_month(github)
    past = month.trunk
    told = [
        *past.events,
        *past_contributions.contributions(github, month.pulls),
        *past_contributions.nightlies(github, now=github.state.now()),
        *past_reports.confirmations(github, month.reported),
    ]
    await github.webhooks.tell(told, told=environment.progress)
    # only now: the bot is not to find in a list what it will have heard of in a moment
    repo.branches[repo.default_branch] = past.commits[-1]
    for sha, passed in past.backend_results.items():
        await _report(environment, sha, passed=passed)
    await buildkite.send_history(environment, [(sha, repo.commits[sha].at) for sha in past.commits])
    return past


def number_of(push: int) -> int:
    """Return the number of the pull request that a push came from."""
    return 140 + push


async def _report(environment: Environment, sha: str, *, passed: bool) -> None:
    backend = environment.backends[participants.RISCV]
    run_id = str(_nightly_run(environment.github, sha, passed=passed).id)
    token = backend.issuer.mint(repository=participants.RISCV, run_id=run_id, audience=backend.audience)
    workflow = {
        "status": "completed",
        "conclusion": "success" if passed else "failure",
        "name": NIGHTLY,
        "job_name": NIGHTLY_JOB,
        "run_id": run_id,
        "url": f"{environment.github.url}/{participants.RISCV}/actions/runs/{run_id}",
        "failed_tests": [] if passed else [participants.MATMUL],
    }
    async with environment.http.post(
        f"{environment.bot.url}/api/oot/callback",
        json={"event_type": "nightly", "delivery_id": sha, "workflow": workflow},
        headers={"Authorization": f"Bearer {token}"},
    ) as answer:
        answer.raise_for_status()


def _nightly_run(github: SimulatedGitHub, sha: str, *, passed: bool) -> Run:
    """Create the run of a backend that tested a commit of upstream at night."""
    repo = github.state.repo(participants.RISCV)
    run = github.queued_run(
        repo, workflow=github.state.workflow(repo, NIGHTLY), event="schedule", actor=participants.AUTHOR
    )
    at = github.state.repo(participants.UPSTREAM).commits[sha].at
    run.created_at = run.started_at = at
    run.status, run.updated_at = "completed", at + HOUR
    run.conclusion = "success" if passed else "failure"
    return run


def make_history(github: SimulatedGitHub, name: str, *, now: int) -> History:
    """Make up the pushes of a month to the default branch of a repository; sends nothing, and moves no branch."""
    repo = github.state.repo(name)
    events: list[Event] = []
    commits: list[str] = []
    sha = repo.branches[repo.default_branch]
    ref = f"refs/heads/{repo.default_branch}"
    for number in range(PUSHES):
        at = now - NEWEST - (PUSHES - 1 - number) * BETWEEN
        before = sha
        sha, who = _commit(repo, before, number, at)
        events.append(payloads.push(github.state, repo, ref=ref, before=before, after=sha, pusher=who))
        for workflow in dict.fromkeys(kind.workflow for kind in JOBS):
            run = github.queued_run(
                repo,
                workflow=github.state.workflow(repo, workflow),
                event="push",
                head_sha=sha,
                actor=who,
            )
            run.created_at = run.started_at = at + MINUTE
            events += _run_events(github, run, number, now)
        commits.append(sha)
        if number == RELEASED:
            events += _release_events(github, repo, sha, at + HOUR)
    return History(events=events, commits=commits)


def _release_events(github: SimulatedGitHub, repo: Repo, head: str, at: int) -> Iterator[Event]:
    """Yield the first push to a release branch, which was made from the head of the default one, and its builds."""
    made = git.commit(
        repo, at=at, message="Prepare the release", author=past_contributions.MEMBERS[0], parents=(head,)
    )
    repo.branches[RELEASE] = made.sha
    yield payloads.push(
        github.state, repo, ref=f"refs/heads/{RELEASE}", before=git.NONE, after=made.sha, pusher=made.author
    )
    run = github.queued_run(
        repo, workflow=github.state.workflow(repo, "pull"), event="push", head_sha=made.sha, actor=made.author
    )
    run.head_branch, run.created_at, run.started_at = RELEASE, at, at
    for kind in JOBS:
        if kind.workflow == "pull" and kind.name.endswith("build"):
            times = (at, at + MINUTE, at + kind.minutes * MINUTE)
            job = github.past_job(run, kind.name, LABELS[kind.runner], conclusion="success", times=times)
            yield payloads.workflow_job(github.state, job, "completed")
    run.status, run.conclusion, run.updated_at = "completed", "success", at + HOUR


def _commit(repo: Repo, head: str, number: int, at: int) -> tuple[str, str]:
    """Add what one push brings onto a head, now and then several commits; return the new head and who pushed it."""
    who = past_contributions.author_of(number)
    title = TITLES[number % len(TITLES)]
    if number == BREAKAGE.start:
        title = BREAKING
    elif number == BREAKAGE.stop:
        title = f'Revert "{BREAKING}"'
    for part in range(3 if number % 9 == 4 else 1):
        message = "Address the review" if part == 1 else f"{title} (#{number_of(number)})"
        made = git.commit(repo, at=at - (2 - part) * MINUTE, message=message, author=who, parents=(head,))
        head = made.sha
    return head, who


def _run_events(github: SimulatedGitHub, run: Run, number: int, now: int) -> Iterator[Event]:
    """Yield what one run of a workflow was; of one that passed and left nothing only the jobs: all the grid needs."""
    last = []
    for kind in JOBS:
        for shard in range(1, kind.shards + 1) if kind.workflow == run.workflow.name else ():
            at = run.created_at
            for attempt, (conclusion, failed) in enumerate(_outcomes(kind, shard, number), 1):
                run.run_attempt = attempt
                planned = Planned(kind=kind, shard=shard, number=number, conclusion=conclusion, failed=failed)
                job = _job(github, run, planned, at=at, now=now)
                yield payloads.workflow_job(github.state, job, job.status)
                at = (job.completed_at or now) + 5 * MINUTE
            last.append(job)
            if number in DOCUMENTED and kind.workflow == "pull" and shard == 1:
                _add_documents(github, run, job, number)
            if number in MEASURED and kind.runner == GPU and shard == 1 and job.completed_at:
                _add_usage(github, run, job, number)
            if number in REPORTED and kind.runner == GPU and shard == 1 and kind.shards > 1:
                flaky = (test_reports.FLAKY,) if number % 2 else ()
                github.add_artifact(run, f"test-reports_{job.id}", test_reports.junit("cuda", flaky=flaky))
    run.run_attempt = max(job.run_attempt for job in last)
    conclusions = {job.conclusion for job in last}
    if None in conclusions:
        run.status, run.updated_at = "in_progress", run.created_at
    else:
        run.status, run.updated_at = "completed", max(job.completed_at or 0 for job in last)
        run.conclusion = "success" if conclusions == {"success"} else "failure"
    reported = number in MEASURED and run.workflow.name == "pull"
    if run.conclusion != "success" or run.run_attempt > 1 or reported:
        yield payloads.workflow_run(github.state, run, run.status)


def _add_documents(github: SimulatedGitHub, run: Run, job: WorkflowJob, number: int) -> None:
    """Add what a build's compiler cache, and the scripts of tests on GPUs, leave."""
    if job.name.startswith("linux-jammy-cuda") and job.name.endswith("build"):
        github.add_artifact(run, f"sccache-stats-{job.id}", job_documents.cache_stats(number))
    elif GPU in job.name:
        at = job.completed_at or job.created_at
        github.add_artifact(run, f"ootbot-metrics-{job.id}", job_documents.metrics(number, at=at))
        github.add_artifact(
            run, f"benchmark-results-{job.id}", job_documents.benchmarks(number, device="cuda")
        )


def _add_usage(github: SimulatedGitHub, run: Run, job: WorkflowJob, number: int) -> None:
    """Add what a machine did while a job ran: busier from week to week, now and then short of memory."""
    started, ended = (job.started_at or job.created_at) // 1000, (job.completed_at or 0) // 1000
    log = usage_logs.usage_log(
        job.name,
        start_at=started,
        seed=number,
        peak=98.5 if number % 13 == 5 else 60 + number * 0.6,
        interval=MEASURED_EVERY,
        length=min(ended - started, usage_logs.LENGTH),
        gpus_read_by="pynvml",
    )
    name = f"usage-log-runattempt{job.run_attempt}-{job.id}.zip"
    github.add_artifact(run, name, {"usage_log.txt": log})


def _job(github: SimulatedGitHub, run: Run, planned: Planned, *, at: int, now: int) -> WorkflowJob:
    """Create a job that was queued then; its times differ from push to push, by arithmetic and not by chance."""
    kind, number, shard = planned.kind, planned.number, planned.shard
    started = at + (number * 37 + kind.minutes * 11 + shard * 53) % 400 * 1_000
    lasts = kind.minutes * MINUTE * (90 + (number * 7 + shard * 3) % 25) // 100
    ended = started + lasts * (3 if planned.conclusion == "timed_out" else 1)
    done = ended < now
    return github.past_job(
        run,
        kind.name.format(shard),
        LABELS[kind.runner],
        conclusion=planned.conclusion if done else None,
        times=(at, started, ended if done else None),
        log=_log(planned, ended) if planned.conclusion == "failure" else None,
    )


def _outcomes(kind: Kind, shard: int, number: int) -> list[tuple[str, FailedTest | None]]:
    """Return how each attempt of a job ended, and which test failed."""
    on = kind.runner, kind.shards
    if number == OUTAGE and kind.workflow != "Lint":
        return [("failure", None)]
    if number in BREAKAGE and on == (MAC, 2):
        return [("failure", NORM)]
    if on == (GPU, 2) and FLAKES.get(number) == shard:
        return [("failure", POOL), ("success", None)]
    if number == HANG and kind.runner == WINDOWS and "test" in kind.name:
        return [("timed_out", None)]
    if number == CANCELLED and kind.workflow == "docs":
        return [("cancelled", None)]
    return [("success", None)]


def _log(planned: Planned, ended: int) -> str:
    if planned.failed:
        return job_logs.job_log("test", (planned.failed,), ended_at=ended)
    return job_logs.job_log(planned.kind.workflow, (), ended_at=ended, last=NO_HOST)
