"""rerun: somebody pressed a re-run button on one of our check runs (key: the delivery's GUID).

Recorded here, done by `run_again`; where there is no run, a fresh dispatch takes its place. The same press twice, or
two presses for the same attempt, cause one re-run. On the gate there is nothing to run: it is written anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot import query, relay
from bot.domain import naming, run_key, verdict
from bot.domain.reading import Kind, read
from bot.store import dispatches, pulls, reruns
from bot.tasks import subject

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.verdict import Facts
    from bot.store import Transaction
    from bot.store.queue import Task

Row = dict[str, Any]
SCOPES = {"rerun-all": "all", "rerun-failed": "failed"}


async def run(context: Context, task: Task) -> None:
    """Do what the button asked for, if it was on a check run or suite of ours."""
    async with context.store.transaction() as tx:
        _, body = await subject.delivery(context, tx, task)
        wish = _wish(body, context.github.app_id)
        if wish is None:
            return
        for facts in await _chosen(tx, context, wish):
            await ask(tx, facts, wish["scope"], cause=task.key)


def _wish(body: Row, app_id: int) -> Row | None:
    """Return what was asked for: `check_run_id` or `head_sha`, the repository and the scope; None when not of us."""
    kind = "check_run" if "check_run" in body else "check_suite"
    repo, sha = read(body, ("repository", "full_name"), Kind.TEXT), read(body, (kind, "head_sha"), Kind.TEXT)
    identifier = read(body, (kind, "id"), Kind.INT)
    if read(body, (kind, "app", "id"), Kind.INT) != app_id or not (repo and sha and identifier):
        return None
    scope: str | None = "failed"
    if body.get("action") == "requested_action":
        scope = SCOPES.get(read(body, ("requested_action", "identifier"), Kind.TEXT) or "")
    if scope is None:
        return None
    return {
        "repo": repo,
        "scope": scope,
        "check_run_id": identifier if kind == "check_run" else None,
        "head_sha": sha,
    }


async def _chosen(tx: Transaction, context: Context, wish: Row) -> list[Facts]:
    """Return the backends to run again: the check run's own, or every red one of a suite's head."""
    repo, sha = wish["repo"], wish["head_sha"]
    check = await pulls.check_by_id(tx, wish["check_run_id"]) if wish["check_run_id"] else None
    if wish["check_run_id"] and check is None:
        return []
    gate = naming.gate(context.settings.check_prefix)
    if check is None or check["name"] == gate:
        await pulls.doubt(tx, repo, sha, gate)  # GitHub shows its suite as queued until it is written
    about = [*await dispatches.on_head(tx, repo, sha), *await pulls.gates_on(tx, repo, [sha], gate)]
    numbers = {check["pr_number"]} if check else {row["pr_number"] for row in about}
    found = []
    for number in sorted(number for number in numbers if number is not None):
        await dispatches.take_turns(tx, repo, number)
        tx.publish(repo, number)
        state = await query.pull_state(tx, context.settings, repo, number, newest=0, also={sha})
        head = state.head(sha)
        for backend in head.view.backends if head else ():
            facts = head.facts.get(backend.repo.casefold()) if head else None
            mine = check["basis"].startswith(f"{facts.dispatch['id']}/") if check and facts else False
            if facts and (mine or (check is None and backend.state.red)):
                found.append(facts)
    return found


async def ask(tx: Transaction, facts: Facts, scope: str, *, cause: str) -> bool:
    """Have a backend's runs run again, `failed` or `all` jobs of them; without any run it is dispatched afresh.

    Returns False when that was asked for already.
    """
    dispatch = facts.dispatch
    attempts = verdict.expected_attempts(facts)
    if not attempts:
        if dispatch["state"] == "pending" or await relay.is_held(tx, dispatch):
            return False
        await relay.afresh(tx, dispatch, cause)
        return True
    red = {job.run_id for job in verdict.latest(facts.jobs) if job.red or not job.finished}
    scope = scope if red else "all"  # nothing failed: there are no failed jobs to run again
    asked = False
    for run_id, attempt in attempts.items():
        vain = any(_was_vain(row, run_id, attempt) for row in facts.reruns)
        if vain and _reported(facts, run_id) < attempt:
            await relay.afresh(tx, dispatch, cause)  # once, however many runs there were
            asked = True
        elif (scope == "all" or run_id in red) and _reported(facts, run_id) == attempt:
            row = {
                "dispatch_id": dispatch["id"],
                "run_id": run_id,
                "from_attempt": attempt,
                "scope": scope,
                "cause": cause,
            }
            if await reruns.ask(tx, row):
                tx.enqueue("run_again", run_key.of_rerun(dispatch["id"], attempt, run_id))
                asked = True
    return asked


def _was_vain(rerun: Row, run_id: str, attempt: int) -> bool:
    """Whether this attempt is a re-run of which nothing came."""
    return (rerun["state"], rerun["run_id"], rerun["from_attempt"]) == ("never_started", run_id, attempt - 1)


def _reported(facts: Facts, run_id: str) -> int:
    return max((job["run_attempt"] for job in facts.jobs if job["run_id"] == run_id), default=0)
