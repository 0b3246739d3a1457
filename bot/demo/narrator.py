"""What is said while the demo goes on? One line for every event, read off the simulated GitHub's logs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bot.demo import seen
from bot.domain import words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.demo.backends import Report
    from bot.demo.github import Call, Delivery, Dispatch
    from bot.demo.loopback import Loopback
    from bot.demo.runner import Step

LOOK = 0.05  # seconds between two looks at the logs
WIDTH = 17  # of the longest repository's name
COLOURS = {"success": "green", "failure": "red"}  # click leaves them out where there is no terminal
T = TypeVar("T")
Line = tuple[str, str]  # repository, what happened there; nothing worth a line is empty


class Narrator:
    """Prints what is new in the logs since it last looked."""

    def __init__(self, on: Loopback) -> None:
        self._on = on
        self._began = on.github.world.now()
        self._read: dict[str, int] = {}  # log -> entries told
        self._shown: dict[str, str] = {}  # check -> what it was last said to show

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self.catch_up()
            await asyncio.sleep(LOOK)

    def catch_up(self) -> None:
        """Print what is new, in the order in which it began."""
        for at, (repo, what) in sorted(self._news(), key=lambda line: line[0]):
            if what and not self._known(what):
                seconds = (at - self._began) / 1000
                click.echo(f"{seconds:6.1f}s  {repo:<{WIDTH}}  {_coloured(what)}")

    def _known(self, what: str) -> bool:
        """Whether a check was written whose line is as before: something else in it has changed."""
        check, _, shows = what.partition(": ")
        if not check.startswith("check "):
            return False
        before, self._shown[check] = self._shown.get(check), shows
        return before == shows

    def _news(self) -> Iterator[tuple[int, Line]]:
        github = self._on.github
        for delivery in self._new("deliveries", github.deliveries):
            yield delivery.delivered_at, _delivery(delivery)
        for dispatch in self._new("dispatches", github.dispatches):
            yield dispatch.at, _dispatch(dispatch)
        for call in self._new("calls", github.calls):
            yield call.at, _call(call)
        for name, backend in self._on.backends.items():
            for step in self._new(f"{name} steps", backend.steps):
                yield step.at, (name, _step(step))
            for report in self._new(f"{name} reports", backend.reports):
                yield report.at, (name, _refused(report))

    def _new(self, log: str, entries: Sequence[T]) -> Sequence[T]:
        told = self._read.get(log, 0)
        self._read[log] = len(entries)
        return entries[told:]


def _coloured(what: str) -> str:
    for word, colour in COLOURS.items():
        what = what.replace(word, click.style(word, fg=colour))
    return what


def _delivery(delivery: Delivery) -> Line:
    """Tell of a webhook that people care about, and of any that was not taken."""
    payload = delivery.payload
    repo = payload["repository"]["full_name"]
    if not delivery.ok:
        return repo, f"webhook {delivery.event} failed: {delivery.status}"
    if delivery.redelivery:
        return repo, f"webhook {delivery.event} delivered again"
    if payload["sender"]["type"] == "Bot":
        return repo, ""
    by = payload["sender"]["login"]
    tell = {
        "pull_request": _pull_request,
        "issue_comment": _issue_comment,
        "check_run": _button,
        "check_suite": _button,
        "workflow_run": _workflow_run,
    }.get(delivery.event)
    return repo, tell(by, delivery.action or "", payload) if tell else ""


def _pull_request(by: str, action: str, payload: dict[str, Any]) -> str:
    pull, number = payload["pull_request"], f"#{payload['number']}"
    label = payload.get("label", {}).get("name", "")
    return {
        "opened": f"{by} opened {number}: {pull['title']}",
        "synchronize": f"{by} pushed {pull['head']['sha'][:7]} to {number}",
        "labeled": f"{by} put the label {label} on {number}",
        "unlabeled": f"{by} took the label {label} off {number}",
    }.get(action, f"{by}: {number} {action}")


def _issue_comment(by: str, action: str, payload: dict[str, Any]) -> str:
    first, *_ = payload["comment"]["body"].splitlines() or [""]
    return f"{by} commented on #{payload['issue']['number']}: {first}" if action == "created" else ""


def _button(by: str, action: str, payload: dict[str, Any]) -> str:
    run = payload.get("check_run", {}).get("name", "all checks")
    if action == "requested_action":
        return f"{by} pressed {payload['requested_action']['identifier']} on {run}"
    return f"{by} pressed Re-run on {run}" if action == "rerequested" else ""


def _workflow_run(_: str, action: str, payload: dict[str, Any]) -> str:
    run = payload["workflow_run"]
    ended = f"run {run['run_number']} ended: {run['conclusion']}{_attempt(run['run_attempt'])}"
    return ended if action == "completed" else ""


def _dispatch(dispatch: Dispatch) -> Line:
    event = dispatch.client_payload.get("payload", {})
    pull = event.get("pull_request", {})
    about = f" #{pull['number']} at {pull['head']['sha'][:7]}" if pull else ""
    return dispatch.repo.full_name, f"is told of {dispatch.event_type}{about} ({event.get('action')})"


def _step(step: Step) -> str:
    job, attempt = step.job, _attempt(step.job.run_attempt)
    if step.status == "in_progress":
        return f"reports {job.name}: in progress{attempt}"
    failed = f", {words.plural(len(step.failed_tests), 'failed test')}" if step.failed_tests else ""
    return f"reports {job.name}: {step.conclusion}{failed}{attempt}"


def _refused(report: Report) -> str:
    """Return the last line of what the reporting action said; empty when it got through."""
    *_, last = report.output.strip().split("\n")
    return f"could not report {report.job}: {last}" if report.exit_code else ""


def _attempt(number: int) -> str:
    return f" (attempt {number})" if number > 1 else ""


def _call(call: Call) -> Line:
    """Tell of what the bot wrote, and of any write that was refused."""
    if call.method == "GET" or call.path.startswith("/app/") or call.path.endswith("/dispatches"):
        return "", ""
    _, _, owner, name, what, *_ = f"{call.path}/".split("/")
    repo, body = f"{owner}/{name}", call.body or {}
    if call.status >= 400:
        return repo, f"refused with {call.status}: {call.method} {call.path}"
    if what == "check-runs":
        outcome = body.get("conclusion") or body.get("status")
        return repo, f"check {body['name']} at {body['head_sha'][:7]}: {outcome} - {body['output']['title']}"
    if "/comments" in call.path:
        made = "made" if call.method == "POST" else "edited"
        return repo, f"comment {made}: {seen.headline(body.get('body', ''))}"
    if call.path.endswith(("/rerun", "/rerun-failed-jobs")):
        return repo, f"is asked to run {'its failed jobs' if 'failed' in call.path else 'everything'} again"
    return repo, f"{call.method} {call.path}"
