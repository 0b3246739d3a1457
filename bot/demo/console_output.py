"""The demo's console output: its addresses, one line per event, a summary and the findings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bot.demo import participants
from bot.demo.environment import POLL_INTERVAL, is_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bot.demo.backends import Report, Step
    from bot.demo.environment import Environment
    from bot.demo.github import Call, Delivery, Dispatch, Pull
    from bot.demo.scenario import Finding

WIDTH = 17  # characters of the longest repository name
COLOURS = {"success": "green", "failure": "red"}  # click leaves them out where there is no terminal
MARKER_LINES = 2  # at the start of a comment: the marker and an empty line
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Line:
    """What happened in a repository; one with an empty text is not printed."""

    repo: str
    text: str


class EventPrinter:
    """Prints the new entries of the simulated GitHub's logs."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._started = environment.github.state.now()
        self._printed: dict[str, int] = {}  # log -> number of entries printed
        self._checks: dict[str, str] = {}  # check -> its outcome and title when last printed

    async def run(self) -> None:
        """Print until cancelled."""
        while True:
            self._print_new()
            await asyncio.sleep(POLL_INTERVAL)

    def _print_new(self) -> None:
        """Print the new entries in the order in which they began."""
        for at, line in sorted(self._new_lines(), key=lambda entry: entry[0]):
            if line.text and not self._unchanged(line.text):
                seconds = (at - self._started) / 1000
                click.echo(f"{seconds:6.1f}s  {line.repo:<{WIDTH}}  {_coloured(line.text)}")

    def _unchanged(self, text: str) -> bool:
        """Whether this is a write of a check whose line stays the same: something else in it has changed."""
        check, _, outcome = text.partition(": ")
        if not check.startswith("check "):
            return False
        before, self._checks[check] = self._checks.get(check), outcome
        return before == outcome

    def _new_lines(self) -> Iterator[tuple[int, Line]]:
        github = self._environment.github
        for delivery in self._new("deliveries", github.deliveries):
            yield delivery.delivered_at, _delivery(delivery)
        for dispatch in self._new("dispatches", github.dispatches):
            yield dispatch.at, _dispatch(dispatch)
        for call in self._new("calls", github.calls):
            yield call.at, self._call(call)
        for name, backend in self._environment.backends.items():
            for step in self._new(f"{name} steps", backend.steps):
                yield step.at, Line(repo=name, text=_step(step))
            for report in self._new(f"{name} reports", backend.reports):
                yield report.at, Line(repo=name, text=_refused(report))

    def _call(self, call: Call) -> Line:
        """Describe one of the bot's writes."""
        if not is_write(call):
            return Line(repo="", text="")
        _, _, owner, name, what, *more = f"{call.path}/".split("/")
        repo = f"{owner}/{name}"
        if what == "check-runs" and call.status < 400:
            return Line(repo=repo, text=self._check_run(repo, call.body or {}, more[0]))
        return Line(repo=repo, text=_write(call))

    def _check_run(self, repo: str, body: dict[str, Any], number: str) -> str:
        """Describe a check run that was made, or changed: then only its number says what it is on."""
        run = self._environment.github.state.repo(repo).check_runs[int(number)] if number else None
        sha = run.head_sha if run else body["head_sha"]
        outcome = body.get("conclusion") or body.get("status")
        return f"check {body['name']} at {sha[:7]}: {outcome} - {body['output']['title']}"

    def _new(self, log: str, entries: Sequence[T]) -> Sequence[T]:
        printed = self._printed.get(log, 0)
        self._printed[log] = len(entries)
        return entries[printed:]


def print_addresses(environment: Environment) -> None:
    """Print the URLs to open."""
    github, bot = environment.github.url, environment.bot.url
    upstream = f"{bot}/{participants.UPSTREAM}"
    for name, url in (
        ("HUD", f"{bot}/"),
        ("HUD, home of upstream", upstream),
        ("HUD, grid of main", f"{bot}/hud/{participants.UPSTREAM}/main"),
        ("HUD, what is red now", f"{bot}/red"),
        ("HUD, backends", f"{bot}/oot"),
        ("HUD, pull request", f"{upstream}/pull/2"),
        ("HUD, administration", f"{bot}/admin"),
        ("", f"sign in with {environment.admin_token}"),
        ("GitHub, pull request", f"{github}/{participants.UPSTREAM}/pull/2"),
        ("GitHub, delivery log", f"{github}/_/deliveries"),
    ):
        click.echo(f"{name:<24}{url}")
    click.echo()


class Progress:
    """Says how much of the month the bot has been told."""

    STEPS = 4

    def __init__(self) -> None:
        self._printed = 0

    def print(self, done: int, total: int) -> None:
        """Print a line for each quarter."""
        step = done * self.STEPS // total
        if step > self._printed:
            self._printed = step
            click.echo(f"a month of CI: {done:,} of {total:,} webhooks delivered")


def summary(environment: Environment, pulls: list[Pull]) -> Iterator[str]:
    """Yield what the pull requests show, and the number of deliveries, dispatches and writes."""
    for pull in pulls:
        yield f"{participants.UPSTREAM} #{pull.number} at {pull.head_sha[:7]}: {pull.title}"
        for run in environment.checks(pull).values():
            yield f"  {run.name:<10}  {run.outcome:<11}  {run.output.title}"
        for comment in environment.comments(pull):
            yield f"  {comment.user.login}: {_headline(comment.body)}"
    check_runs, comments = environment.creations("check-runs"), environment.creations("comments")
    github, writes = environment.github, environment.writes()
    others = len(writes) - len(check_runs) - len(comments)
    yield (
        f"{len(github.deliveries)} webhooks delivered, {len(github.dispatches)} dispatches, "
        f"{len(writes)} API writes: {len(check_runs)} check runs and "
        f"{len(comments)} comments created, {others} updates and re-runs"
    )


def print_findings(findings: Iterable[Finding]) -> None:
    """Print every finding, the problems in red."""
    for finding in findings:
        if finding.problem:
            click.secho(f"FAILED: {finding.expectation}: {finding.problem}", fg="red")
        else:
            click.echo(f"ok  {finding.expectation}")


def _coloured(text: str) -> str:
    for word, colour in COLOURS.items():
        text = text.replace(word, click.style(word, fg=colour))
    return text


def _headline(body: str) -> str:
    """Return the first visible line of a comment, without its Markdown."""
    lines = body.splitlines()[MARKER_LINES:]
    return lines[0].replace("**", "").replace("`", "") if lines else ""


def _delivery(delivery: Delivery) -> Line:
    """Describe a failed or repeated delivery, or what a person did."""
    payload = delivery.payload
    repo = payload["repository"]["full_name"]
    if not delivery.ok:
        return Line(repo=repo, text=f"webhook {delivery.event} failed: {delivery.status}")
    if delivery.redelivery:
        return Line(repo=repo, text=f"webhook {delivery.event} redelivered")
    if payload["sender"]["type"] == "Bot":
        return Line(repo=repo, text="")
    describe = {
        "pull_request": _pull_request,
        "issue_comment": _issue_comment,
        "check_run": _button,
        "check_suite": _button,
        "workflow_run": _workflow_run,
    }.get(delivery.event)
    sender, action = payload["sender"]["login"], delivery.action or ""
    return Line(repo=repo, text=describe(sender, action, payload) if describe else "")


def _pull_request(sender: str, action: str, payload: dict[str, Any]) -> str:
    pull, number = payload["pull_request"], f"#{payload['number']}"
    label = payload.get("label", {}).get("name", "")
    return {
        "opened": f"{sender} opened {number}: {pull['title']}",
        "synchronize": f"{sender} pushed {pull['head']['sha'][:7]} to {number}",
        "labeled": f"{sender} added the label {label} to {number}",
        "unlabeled": f"{sender} removed the label {label} from {number}",
    }.get(action, f"{sender}: {number} {action}")


def _issue_comment(sender: str, action: str, payload: dict[str, Any]) -> str:
    first, *_ = payload["comment"]["body"].splitlines() or [""]
    return f"{sender} commented on #{payload['issue']['number']}: {first}" if action == "created" else ""


def _button(sender: str, action: str, payload: dict[str, Any]) -> str:
    run = payload.get("check_run", {}).get("name", "all checks")
    if action == "requested_action":
        return f"{sender} pressed {payload['requested_action']['identifier']} on {run}"
    return f"{sender} pressed Re-run on {run}" if action == "rerequested" else ""


def _workflow_run(_: str, action: str, payload: dict[str, Any]) -> str:
    run = payload["workflow_run"]
    ended = f"run {run['run_number']} ended: {run['conclusion']}{_attempt(run['run_attempt'])}"
    return ended if action == "completed" else ""


def _dispatch(dispatch: Dispatch) -> Line:
    event = dispatch.client_payload.get("payload", {})
    pull = event.get("pull_request", {})
    subject = f" #{pull['number']} at {pull['head']['sha'][:7]}" if pull else ""
    if search := dispatch.client_payload.get("bisect"):
        subject, why = f" of {event['after'][:7]}", f"search {search['id']}"
    else:
        why = str(event.get("action"))
    text = f"receives a dispatch: {dispatch.event_type}{subject} ({why})"
    return Line(repo=dispatch.repo.full_name, text=text)


def _step(step: Step) -> str:
    job, attempt = step.job, _attempt(step.job.run_attempt)
    if step.status == "in_progress":
        return f"reports {job.name}: in progress{attempt}"
    count = len(step.failed_tests)
    failed = f", {count} failed {'test' if count == 1 else 'tests'}" if count else ""
    return f"reports {job.name}: {step.conclusion}{failed}{attempt}"


def _refused(report: Report) -> str:
    """Return the last line that a failed reporting action printed; empty for one that succeeded."""
    *_, last = report.output.strip().split("\n")
    return f"could not report {report.job}: {last}" if report.exit_code else ""


def _attempt(number: int) -> str:
    return f" (attempt {number})" if number > 1 else ""


def _write(call: Call) -> str:
    body = call.body or {}
    if call.status >= 400:
        return f"refused with {call.status}: {call.method} {call.path}"
    if "/comments" in call.path:
        done = "created" if call.method == "POST" else "edited"
        return f"comment {done}: {_headline(body.get('body', ''))}"
    if call.path.endswith("/rerun-failed-jobs"):
        return "is asked to re-run its failed jobs"
    if call.path.endswith("/rerun"):
        return "is asked to re-run everything"
    return f"{call.method} {call.path}"
