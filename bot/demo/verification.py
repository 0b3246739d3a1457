"""Verification after the scenario: what GitHub and the bot have recorded, compared with the promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from bot.demo import participants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from bot.demo.environment import Environment
    from bot.demo.github import CheckRun, Delivery, Pull

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


async def findings(environment: Environment, pulls: list[Pull]) -> list[Finding]:
    """Return every finding on these pull requests; delivers every webhook a second time on the way."""
    first, second = pulls
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
        (f"/api/oot/backends/{participants.TPU}", (first.head_sha, second.head_sha)),
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
    """Nothing was created twice, or by anybody else."""
    github, app = environment.github, environment.app
    for pull in pulls:
        comments = github.comments(pull)
        others = [f"{comment.user.login} by {comment.app}" for comment in comments if comment.app is not app]
        yield Finding(
            expectation=f"#{pull.number} has exactly one comment, and its author is the App",
            problem=f"{len(comments)} comments, {others}" if len(comments) != 1 or others else "",
        )
    keys = Counter(call.body["external_id"] for call in environment.creations("check-runs"))
    yield _finding("no check run was created twice for the same state", _repeated(keys))
    dispatches = Counter(
        (dispatch.client_payload["delivery_id"], dispatch.repo.full_name) for dispatch in github.dispatches
    )
    yield _finding("no delivery was dispatched to the same backend twice", _repeated(dispatches))


def _visibility(environment: Environment, pulls: list[Pull]) -> Iterator[Finding]:
    """Levels 1 and 2 show nothing on the pull request, and an old commit keeps its checks."""
    runs = environment.github.check_runs_all(participants.UPSTREAM)
    names = {run.name for run in runs if run.app is environment.app}
    known = {participants.GATE, participants.TPU_CHECK, participants.NPU_CHECK}
    yield _finding("L1 and L2 backends have no check", names - known)
    old = environment.checks(pulls[0], pulls[0].commits[0])
    changed = [name for name in (participants.GATE, participants.TPU_CHECK) if not _failed(old.get(name))]
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
