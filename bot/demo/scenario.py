"""The demo's scenario: steps on two pull requests, each waiting for its expected effects before the next."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from bot.demo import culprits, documentation, own_ci, participants, test_reports, trunk_history
from bot.demo.participants import GATE, MATMUL, NPU, SCATTER, TPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from bot.demo.environment import Environment
    from bot.demo.github import CheckRun, Delivery, Pull
    from bot.demo.trunk_history import History

# Labels and pushes are at least a second apart, as GitHub's timestamps have whole seconds.
PAUSE = 1.1


class Scenario:
    """The scenario's progress: its pull requests, and the expectations that came true."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.wanted = environment.expected
        self.pulls: list[Pull] = []
        self.fulfilled: list[str] = []  # in order
        self.history: History | None = None
        self.own_jobs: list[int] = []  # upstream's: one that failed, then those whose machines were watched

    async def play(self) -> None:
        """Play it to the end; raise ExpectationError at the first expectation that does not come true."""
        await self.environment.ready()
        if self.wanted.history:
            self.history = await trunk_history.send_history(self.environment)
        await self.open_pull_request()
        await self.blocking_failure()
        await self.add_label()
        await self.push_commit()
        await self.rerun()
        await self.second_pull_request()
        for step in (documentation.change_documentation, own_ci.disable, own_ci.flake):
            await step(self)
        measured = await own_ci.measure(self)
        self.own_jobs = [await own_ci.fail(self), *measured]
        await culprits.find_culprit(self)

    async def open_pull_request(self) -> None:
        """A pull request is opened and dispatched to every backend; an L2 backend reports for the HUD alone."""
        self.environment.backends[TPU].plan(*participants.tpu_jobs(MATMUL, SCATTER), attempt=1)
        self.pulls.append(
            await self.environment.github.open_pull(
                participants.UPSTREAM,
                title="Multiply small matrices without a copy",
                author=participants.AUTHOR,
                body="Twice as fast for matrices below 64 by 64.",
            )
        )
        await self.expect("the pull request is dispatched to every listed backend", self._all_dispatched)
        await self.expect("the L2 backend reports its success", lambda: self._reported(participants.RISCV))

    async def blocking_failure(self) -> None:
        """The blocking backend fails; its check, the gate and the comment show it."""
        await self.expect(
            "the L4 backend's check fails with the two failed tests in its title"
            if self.wanted.counted
            else "the check of the L4 backend's job fails",
            lambda: self._check_is(self.wanted.tpu, "failure", self._counts("2 failed")),
        )
        await self.expect("the gate fails", lambda: self._check_is(GATE, "failure", "tpu failed"))
        await self.expect(
            "a comment names the failed tests and mentions the on-call",
            lambda: self.comment_has(
                MATMUL["name"], SCATTER["name"], f"@{participants.TPU_ONCALL}", self._short_sha()
            ),
        )

    async def add_label(self) -> None:
        """The check of the non-blocking backend appears with its label, even if the backend is done by then."""
        await self.expect(
            "the L3 backend has no check without its label", lambda: not self._check(self.wanted.npu)
        )
        await asyncio.sleep(PAUSE)
        await self.environment.github.label(self.pull, participants.NPU_LABEL)
        await self.expect("the label makes the L3 check appear", lambda: self._check(self.wanted.npu))
        await self.expect(
            "the L3 check passes",
            lambda: self._check_is(self.wanted.npu, "success", self._counts("3140 passed")),
        )

    async def push_commit(self) -> None:
        """A commit is pushed while no runner is free; the old verdict stays until the first report."""
        await self._tpu_idle()
        before = self._short_sha()
        self.environment.backends[TPU].plan(*participants.tpu_jobs(MATMUL), attempt=1)
        self.environment.runners.clear()
        await asyncio.sleep(PAUSE)
        await self.environment.github.push_commit(self.pull)
        await self.expect("a new commit is dispatched to every backend", self._all_dispatched)
        await self.expect(
            "the new commit's checks wait",
            lambda: (
                (not self.wanted.queued or self._check_is(self.wanted.tpu, "queued"))
                and self._check_is(GATE, "in_progress", "tpu")
            ),
        )
        await self.expect(
            "meanwhile the comment keeps the previous commit's verdict",
            lambda: self.comment_has("previous commit", before, self._short_sha(), SCATTER["name"]),
        )
        self.environment.runners.set()
        await self.expect(
            "one test still fails",
            lambda: self._check_is(self.wanted.tpu, "failure", self._counts("1 failed")),
        )
        await self.expect(
            "the comment is about the new commit now",
            lambda: (
                self.comment_has(self._short_sha(), MATMUL["name"])
                and not self.comment_has("previous commit")
            ),
        )
        await self.expect("the L3 check passes again", lambda: self._check_is(self.wanted.npu, "success"))

    async def rerun(self) -> None:
        """Re-run is pressed; the second attempt passes, and so does the gate."""
        await self._tpu_idle()
        failed = self._check(self.wanted.tpu)
        assert failed is not None
        await self._press_rerun(failed)
        await self.expect(
            "Re-run makes a new check of the same name, which passes",
            lambda: self._check_is(self.wanted.tpu, "success") and self._check(self.wanted.tpu) is not failed,
        )
        await self.expect("the gate passes", lambda: self._check_is(GATE, "success", "1 blocking"))
        await self.expect(
            "the comment says that all have passed",
            lambda: self.comment_has("2 passed") and not self.comment_has(MATMUL["name"]),
        )

    async def second_pull_request(self) -> None:
        """A second pull request stays red, for the visitor to press Re-run on."""
        self.environment.backends[TPU].plan(*participants.tpu_jobs(MATMUL, SCATTER), attempt=1)
        self.environment.backends[NPU].plan(*participants.NPU_FAILS, attempt=1)
        self.pulls.append(
            await self.environment.github.open_pull(
                participants.UPSTREAM,
                title="Reject empty indices in scatter_add",
                author=participants.AUTHOR,
                labels=[participants.NPU_LABEL],
                body="Press **Re-run** below: the second attempt passes.",
            )
        )
        await self.expect(
            "on a second pull request the L4 check fails",
            lambda: self._check_is(self.wanted.tpu, "failure", self._counts("2 failed")),
        )
        await self.expect(
            f"an L3 failure is shown as {self.wanted.l3_failure}",
            lambda: self._check_is(self.wanted.npu, self.wanted.l3_failure, self._counts("2 failed")),
        )
        await self.expect("its gate fails", lambda: self._check_is(GATE, "failure", "tpu failed"))
        await self.expect(
            "its comment names both backends",
            lambda: self.comment_has("tpu", "npu", MATMUL["name"], "2 failed"),
        )
        await self._tpu_idle()

    async def expect(self, expectation: str, condition: Callable[[], object]) -> None:
        """Wait until the condition holds, then record the expectation."""
        await self.environment.wait_until(expectation, condition)
        self.fulfilled.append(expectation)

    @property
    def pull(self) -> Pull:
        """The pull request of the current step."""
        return self.pulls[-1]

    def comment_has(self, *texts: str) -> bool:
        """Whether the comment of the current pull request has these texts."""
        comments = self.environment.comments(self.pull)
        return bool(comments) and all(text in comments[-1].body for text in texts)

    def _short_sha(self) -> str:
        return self.pull.head_sha[:7]

    def _check(self, name: str) -> CheckRun | None:
        return self.environment.checks(self.pull).get(name)

    def _counts(self, words: str) -> str:
        """Return what a title has to say of the tests."""
        return words if self.wanted.counted else ""

    def _check_is(self, name: str, outcome: str, title: str = "") -> bool:
        run = self._check(name)
        return run is not None and run.outcome == outcome and title in (run.output.title or "")

    def _all_dispatched(self) -> bool:
        sha = self.pull.head_sha
        dispatched = {
            dispatch.repo.full_name
            for dispatch in self.environment.github.dispatches
            if dispatch.event_type == "pull_request"
            and dispatch.client_payload["payload"]["pull_request"]["head"]["sha"] == sha
        }
        return dispatched == set(participants.BACKENDS)

    def _reported(self, backend: str) -> bool:
        reports = self.environment.backends[backend].reports
        return any(report.status == "completed" and report.exit_code == 0 for report in reports)

    async def _tpu_idle(self) -> None:
        """Wait until GitHub has completed the runs: a run in progress cannot be re-run."""
        runs = self.environment.github.state.repo(TPU).runs
        await self.environment.wait_until(
            f"the runs of {TPU} end", lambda: all(run.status == "completed" for run in runs.values())
        )

    async def _press_rerun(self, run: CheckRun) -> None:
        """Press the button on the pull request's page, as a browser does."""
        url = f"{self.environment.github.url}/{run.repo.full_name}/runs/{run.id}/rerequest"
        async with self.environment.http.post(url) as page:
            page.raise_for_status()


ACCEPTED = 202
SETTLED = 2.0  # seconds without a call after which the bot counts as done


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An expectation and what contradicts it; `problem` is empty when it holds."""

    expectation: str
    problem: str = ""


class Snapshot(NamedTuple):
    """Everything that handling a delivery twice could change."""

    checks: list[tuple[object, ...]]
    comments: list[tuple[int, str]]
    dispatches: int
    writes: int


async def findings(environment: Environment, pulls: list[Pull], own_jobs: Iterable[int]) -> list[Finding]:
    """Return every finding on these pull requests; delivers every webhook a second time on the way.

    `own_jobs` are upstream's own: one that failed, then those whose machines were watched.
    """
    first, second = pulls
    own_job, *measured = own_jobs
    hud = (participants.RISCV, "1 watching backend is broken") if environment.expected.history else ()
    pages: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("/oot", participants.BACKENDS),
        (
            f"/{participants.UPSTREAM}/pull/{first.number}",
            (first.head_sha[:7], "tpu", participants.RISCV),
        ),
        (
            f"/{participants.UPSTREAM}/pull/{second.number}",
            (participants.MATMUL["name"], participants.FPGA, "queued"),
        ),
        (
            f"/api/oot/pulls/{participants.UPSTREAM}/{second.number}",
            (participants.MATMUL["name"], participants.NPU),
        ),
        (
            f"/{participants.UPSTREAM}/job/{own_job}",
            (participants.OWN_JOB, f"test-reports_{own_job}", "stored"),
        ),
        *((f"/{participants.UPSTREAM}/job/{one}/utilization", ("97.4 %", "NPUs idle")) for one in measured),
        (f"/{participants.UPSTREAM}/utilization", ("linux-npu / test", "Idle hours")),
        (
            f"/{participants.UPSTREAM}/commit/{second.head_sha}/tests",
            (participants.MATMUL["name"], participants.FFT["name"]),
        ),
        (f"/api/oot/backends/{participants.TPU}", (first.head_sha, second.head_sha)),
        (f"/{participants.UPSTREAM}/disabled", (participants.DISABLED_TEST, "no write access")),
        (f"/{participants.UPSTREAM}/disabled/suggestions", (test_reports.FLAKY, "slow, 3, 3")),
        (f"/hud/{participants.UPSTREAM}/main", hud),
        *(culprits.PAGES if environment.expected.history else ()),
        ("/readyz", ()),
        ("/metrics", ("ootbot",)),
    )
    return [
        *_no_duplicates(environment, pulls),
        *_visibility(environment, pulls),
        *_responses(environment),
        *[await _page(environment, path, texts) for path, texts in pages],
        await _redelivery(environment, pulls),
        Finding(expectation="the bot logged no error", problem=environment.bot.first_error()),
    ]


async def stop_bot(environment: Environment) -> Finding:
    """Stop the bot, which must exit cleanly and in time."""
    code = await environment.bot.stop()
    return Finding(expectation="the bot stops cleanly", problem=f"exit code {code}" if code else "")


def _no_duplicates(environment: Environment, pulls: list[Pull]) -> Iterator[Finding]:
    """Nothing was created twice, or by another App."""
    github, app = environment.github, environment.app
    for pull in pulls:
        comments = [comment for comment in github.comments(pull) if comment.app]  # people's apart
        others = [f"{comment.user.login} by {comment.app}" for comment in comments if comment.app is not app]
        yield Finding(
            expectation=f"#{pull.number} has exactly one comment, and its author is the App",
            problem=f"{len(comments)} comments, {others}" if len(comments) != 1 or others else "",
        )
    made = [call.body for call in environment.creations("check-runs")]
    keys = Counter((body["external_id"], body["name"], body.get("details_url")) for body in made)
    yield _finding("no check run was created twice for the same state", _repeated(keys))
    dispatches = Counter(
        (dispatch.client_payload["delivery_id"], dispatch.repo.full_name) for dispatch in github.dispatches
    )
    yield _finding("no delivery was dispatched to the same backend twice", _repeated(dispatches))


def _visibility(environment: Environment, pulls: list[Pull]) -> Iterator[Finding]:
    """Levels 1 and 2 show nothing on the pull request, and an old commit keeps its checks."""
    runs = environment.github.check_runs_all(participants.UPSTREAM)
    names = {run.name for run in runs if run.app is environment.app}
    wanted = environment.expected
    known = {participants.GATE, wanted.tpu, wanted.npu, *wanted.others}
    yield _finding("L1 and L2 backends have no check", names - known)
    old = environment.checks(pulls[0], pulls[0].commits[0])
    changed = [name for name in (participants.GATE, wanted.tpu) if not _failed(old.get(name))]
    yield _finding("the old commit keeps its verdict", changed)
    reports = [(name, report) for name, backend in environment.backends.items() for report in backend.reports]
    refused = [f"{name}: {report.output}" for name, report in reports if report.exit_code]
    yield _finding("every report was accepted", refused)


def _responses(environment: Environment) -> Iterator[Finding]:
    github = environment.github
    refused = [f"{each.event} {each.status_code}" for each in github.deliveries if not _accepted(each)]
    yield _finding("every webhook was answered 202", refused)
    failed = [f"{call.method} {call.path} {call.status}" for call in github.calls if call.status >= 400]
    yield _finding("GitHub refused none of the bot's calls", failed)


async def _page(environment: Environment, path: str, texts: Iterable[str]) -> Finding:
    expectation = f"the bot answers {path}"
    try:
        async with environment.http.get(environment.bot.url + path) as answer:
            page = await answer.text()
            answer.raise_for_status()
    except (aiohttp.ClientError, TimeoutError) as error:
        return Finding(expectation=expectation, problem=repr(error))
    return _finding(expectation, [f"{text} is missing" for text in texts if text not in page])


async def _redelivery(environment: Environment, pulls: list[Pull]) -> Finding:
    """Deliver everything a second time, which must change nothing."""
    await environment.quiet(SETTLED)
    before = _snapshot(environment, pulls)
    github = environment.github
    repeated = [await github.redeliver(delivery) for delivery in list(github.deliveries)]
    await environment.quiet(SETTLED)
    problems = [f"{each.event} {each.status_code}" for each in repeated if not _accepted(each)]
    if _snapshot(environment, pulls) != before:
        problems.append("the pull requests, the dispatches or the number of writes changed")
    return _finding(f"redelivering all {len(repeated)} webhooks changes nothing", problems)


def _snapshot(environment: Environment, pulls: list[Pull]) -> Snapshot:
    github = environment.github
    runs = github.check_runs_all(participants.UPSTREAM)
    return Snapshot(
        checks=[(run.id, run.status, run.conclusion, run.output) for run in runs],
        comments=[(comment.id, comment.body) for pull in pulls for comment in github.comments(pull)],
        dispatches=len(github.dispatches),
        writes=len(environment.writes()),
    )


def _accepted(delivery: Delivery) -> bool:
    return delivery.status_code == ACCEPTED


def _failed(run: CheckRun | None) -> bool:
    return run is not None and run.conclusion == "failure"


def _repeated(counts: Counter[Any]) -> list[object]:
    return [key for key, count in counts.items() if count > 1]


def _finding(expectation: str, problems: Iterable[object]) -> Finding:
    return Finding(expectation=expectation, problem=", ".join(map(str, problems)))
