"""Re-runs: requested by a command or a button of our check runs (task `rerun`), carried out by the task `run_again`.

A request is recorded first: the same one twice, or two for the same attempt, cause one re-run. Where there is no run,
or GitHub can no longer run it again (too old, unknown, another CI), a new dispatch takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, OotbotError, RetryLater
from bot.core.json_fields import Kind, read_member
from bot.oot.dispatch import approval
from bot.oot.dispatch.redispatch import redispatch
from bot.oot.publish import check_run_text, rows
from bot.oot.results import task_keys
from bot.oot.results.store import dispatches, reruns
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict import pull_state
from bot.oot.verdict.verdict import is_finished, is_red

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow, RerunRow
    from bot.oot.verdict.facts import Facts
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.rerun")

SCOPES = {"rerun-all": "all", "rerun-failed": "failed"}  # by the identifier of our button
STILL_RUNNING = 15.0  # seconds until GitHub is asked again about a run that has reported its end
GOES_ON, OFTEN = 120.0, 4  # and, asked that often, about one that goes on: it may take days


class RunGoesOn(OotbotError):
    """GitHub runs nothing again while the run goes on."""


@dataclass(frozen=True, kw_only=True)
class ButtonPress:
    """A press of a re-run button, on a check run of ours or on our check suite of a head."""

    repo: str
    head_sha: str
    check_run_id: int | None  # None: the suite
    scope: str  # failed | all


async def handle_button(context: Context, task: Task) -> None:
    """Request the re-runs that a button asks for, if it is ours (key: the delivery's GUID).

    On the gate there is nothing to run: it is written again.
    """
    async with context.store.transaction() as tx:
        _, body = await task_keys.read_delivery(context, tx, task)
        press = _read_press(body, context.github.app_id)
        if press is None:
            return
        for facts in await _chosen(tx, context, press):
            await request_rerun(tx, facts, press.scope, cause=task.key)


async def request_rerun(tx: Transaction, facts: Facts, scope: str, *, cause: str) -> bool:
    """Have the `failed` jobs, or `all`, of a backend's runs run again; without any run it is dispatched again.

    Returns False when that was requested already.
    """
    dispatch = facts.dispatch
    attempts = facts.expected
    if not attempts:
        if dispatch["state"] in {"pending", "waiting"} or await approval.is_held(tx, dispatch):
            return False
        await redispatch(tx, dispatch, cause)
        return True
    failed = {row["run_id"] for row in facts.latest if is_red(row) or not is_finished(row)}
    scope = scope if failed else "all"  # nothing failed: there are no failed jobs to run again
    requested = False
    for run_id, attempt in attempts.items():
        vain = any(_was_vain(row, run_id, attempt) for row in facts.reruns)
        if vain and _reported(facts, run_id) < attempt:
            again = await dispatches.get_dispatch(tx, facts.dispatch_of(run_id)) or dispatch
            await redispatch(tx, again, cause)  # once, however many runs there were
            requested = True
        elif (scope == "all" or run_id in failed) and _reported(facts, run_id) == attempt:
            mine = facts.dispatch_of(run_id)
            row = {
                "dispatch_id": mine,
                "run_id": run_id,
                "from_attempt": attempt,
                "scope": scope,
                "cause": cause,
            }
            if await reruns.request(tx, row):
                tx.enqueue("run_again", task_keys.rerun_key(mine, attempt, run_id))
                requested = True
    return requested


async def run_again(context: Context, task: Task) -> None:
    """Ask GitHub to run a run again unless it does so already (key: `dispatch/attempt/run_id`, its attempt until now).

    If it cannot, dispatch again, unless the pull request is closed or has a newer commit.
    """
    identifier, attempt, run_id = task_keys.parse_rerun(task.key)
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, identifier)
        of_run = [
            row for row in await reruns.read_for_dispatches(tx, [identifier]) if row["run_id"] == run_id
        ]
    rerun = next((row for row in of_run if row["from_attempt"] == attempt), None)
    if dispatch is None or rerun is None:
        raise GiveUp(f"no re-run {task.key} was requested")
    if rerun["state"] != "asked":
        return
    try:
        started = await _start_at_github(context, dispatch, rerun)
    except RunGoesOn as unfinished:
        async with context.store.transaction() as tx:
            await reruns.wait_on(tx, rerun)
        after = STILL_RUNNING if task.attempts <= OFTEN else GOES_ON
        raise RetryLater(str(unfinished), after=after) from unfinished
    async with context.store.transaction() as tx:
        await dispatches.lock_pull(tx, dispatch["upstream_repo"], dispatch["pr_number"])
        await reruns.settle(tx, rerun, "sent" if started else "impossible")
        if not started:
            await redispatch(tx, dispatch, rerun["cause"])  # once, however many runs that asked for
        request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("re-run", backend=dispatch["backend"], run=run_id, at_github=started, cause=rerun["cause"])


def _read_press(body: dict[str, Any], app_id: int) -> ButtonPress | None:
    """Return what a check_run or check_suite event asks for; None if the button is not ours."""
    kind = "check_run" if "check_run" in body else "check_suite"
    repo, sha = (
        read_member(body, ("repository", "full_name"), Kind.TEXT),
        read_member(body, (kind, "head_sha"), Kind.TEXT),
    )
    identifier = read_member(body, (kind, "id"), Kind.INT)
    if read_member(body, (kind, "app", "id"), Kind.INT) != app_id or not (repo and sha and identifier):
        return None
    scope: str | None = "failed"
    if body.get("action") == "requested_action":
        scope = SCOPES.get(read_member(body, ("requested_action", "identifier"), Kind.TEXT) or "")
    if scope is None:
        return None
    check_run_id = identifier if kind == "check_run" else None
    return ButtonPress(repo=repo, head_sha=sha, check_run_id=check_run_id, scope=scope)


async def _chosen(tx: Transaction, context: Context, press: ButtonPress) -> list[Facts]:
    """Return the backends to run again: the check run's own, or every red one of a suite's head."""
    repo, sha = press.repo, press.head_sha
    check = await rows.check_by_id(tx, press.check_run_id) if press.check_run_id else None
    if press.check_run_id and check is None:
        return []
    gate = check_run_text.gate_name(context.settings.check_prefix)
    if check is None or check["name"] == gate:
        await rows.force_rewrite(tx, repo, sha, gate)  # GitHub shows its suite as queued until it is written
    if check:
        numbers = {check["pr_number"]}
    else:
        numbers = {row["pr_number"] for row in await dispatches.read_for_head(tx, repo, sha)}
        numbers |= {row["pr_number"] for row in await rows.gates_on(tx, repo, [sha], gate)}
    found = []
    for number in sorted(number for number in numbers if number is not None):
        await dispatches.lock_pull(tx, repo, number)
        request_publish(tx, repo, number)
        state = await pull_state.read_pull(tx, context.settings, repo, number, newest=0, also={sha})
        head = state.head(sha)
        for backend in head.view.backends if head else ():
            facts = head.facts.get(backend.repo.casefold()) if head else None
            mine = check["basis"].startswith(f"{facts.dispatch['id']}/") if check and facts else False
            if facts and (mine or (check is None and backend.state.red)):
                found.append(facts)
    return found


def _was_vain(rerun: RerunRow, run_id: str, attempt: int) -> bool:
    """Whether this attempt is a re-run that never started."""
    return (rerun["state"], rerun["run_id"], rerun["from_attempt"]) == ("never_started", run_id, attempt - 1)


def _reported(facts: Facts, run_id: str) -> int:
    return facts.reported.get(run_id, 0)


async def _start_at_github(context: Context, dispatch: DispatchRow, rerun: RerunRow) -> bool:
    """Return whether GitHub runs the run again; False when it never will."""
    run_id = rerun["run_id"]
    if not (run_id.isascii() and run_id.isdigit()):
        return False
    client = context.backend_github.client(dispatch["backend"], actions="write")
    everything, failed = f"actions/runs/{run_id}/rerun", f"actions/runs/{run_id}/rerun-failed-jobs"
    try:
        found = await client.getitem(client.path(f"actions/runs/{run_id}"))
        if found["run_attempt"] > rerun["from_attempt"]:
            return True
        if found["status"] != "completed":
            raise RunGoesOn(f"run {run_id} has not ended yet")
        await client.post(client.path(everything if rerun["scope"] == "all" else failed), data={})
    except GitHubRefused as error:
        log.info("cannot be run again", backend=dispatch["backend"], run=run_id, reason=str(error))
        return False
    return True
