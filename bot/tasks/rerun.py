"""rerun: somebody pressed a re-run button on one of our check runs (key: the delivery's GUID).

The failed jobs of that backend's run are run again; where they cannot be, a fresh dispatch takes their place. The same
press twice, or two presses for the same attempt, cause one re-run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from bot import query, relay
from bot.domain import verdict
from bot.errors import GitHubRefused, GiveUp, RetryLater
from bot.store import dispatches, inbox, pulls

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.verdict import Facts
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.rerun")

Row = dict[str, Any]
STILL_RUNNING = 15.0  # seconds until a run that reported its end is asked about again
SCOPES = {"rerun-all": "all", "rerun-failed": "failed"}


async def run(context: Context, task: Task) -> None:
    """Do what the button asked for, if it was on a check run or suite of ours."""
    async with context.store.transaction() as tx:
        stored = await inbox.find(tx, task.key)
        if stored is None:
            raise GiveUp(f"delivery {task.key} is not stored any more")
        wish = _wish(msgspec.json.decode(stored["body"]), context.github.app_id)
        chosen = await _chosen(tx, context, wish) if wish else []
        asked = (
            [row for facts in chosen for row in await _ask(tx, facts, wish["scope"], task.key)]
            if wish
            else []
        )
    for row in asked:
        await _send(context, row, task.key)


def _wish(body: Row, app_id: int) -> Row | None:
    """Return what was asked for: `check_run_id` or `head_sha`, the repository and the scope; None when not of us."""
    about = body.get("check_run") or body.get("check_suite") or {}
    repo = (body.get("repository") or {}).get("full_name")
    if (about.get("app") or {}).get("id") != app_id or not repo:
        return None
    scope = "failed"
    if body.get("action") == "requested_action":
        identifier = (body.get("requested_action") or {}).get("identifier")
        if identifier not in SCOPES:
            return None
        scope = SCOPES[identifier]
    run_id = about.get("id") if "check_run" in body else None
    return {"repo": repo, "scope": scope, "check_run_id": run_id, "head_sha": about.get("head_sha")}


async def _chosen(tx: Transaction, context: Context, wish: Row) -> list[Facts]:
    """Return the backends to run again: the check run's own, or every red one of a suite's head."""
    repo, sha = wish["repo"], wish["head_sha"]
    check = await pulls.check_by_id(tx, wish["check_run_id"]) if wish["check_run_id"] else None
    if wish["check_run_id"] and check is None:
        return []
    rows = await dispatches.on_head(tx, repo, sha)
    numbers = {check["pr_number"]} if check else {row["pr_number"] for row in rows}
    found = []
    for number in sorted(number for number in numbers if number is not None):
        tx.enqueue("publish", f"{repo}#{number}")
        state = await query.pull_state(tx, context.settings, repo, number)
        head = state.head(sha)
        for backend in head.view.backends if head else ():
            facts = head.facts.get(backend.repo.casefold()) if head else None
            mine = check["basis"].startswith(f"{facts.dispatch['id']}/") if check and facts else False
            if facts and (mine or (check is None and backend.state.red)):
                found.append(facts)
    return found


async def _ask(tx: Transaction, facts: Facts, scope: str, cause: str) -> list[Row]:
    """Record which runs are to be run again; a backend without any gets a fresh dispatch at once."""
    dispatch = facts.dispatch
    attempts = verdict.expected_attempts(facts)
    pending = [row for row in facts.reruns if row["state"] == "asked"]
    if not attempts:
        if dispatch["state"] != "pending":
            await relay.afresh(tx, dispatch, f"attempt of {dispatch['id']}")
        return []
    red = {job.run_id for job in verdict.latest(facts.jobs) if job.red or not job.finished}
    scope = scope if red else "all"  # nothing failed: there are no failed jobs to run again
    asked = []
    for run_id, attempt in attempts.items():
        if scope == "all" or run_id in red:
            row = {
                "dispatch_id": dispatch["id"],
                "run_id": run_id,
                "from_attempt": attempt,
                "scope": scope,
                "cause": cause,
            }
            if _reported(facts, run_id) == attempt and await dispatches.ask_rerun(tx, row):
                asked.append(row)
    return asked or [row for row in pending if row["cause"] == cause]


def _reported(facts: Facts, run_id: str) -> int:
    return max((job["run_attempt"] for job in facts.jobs if job["run_id"] == run_id), default=0)


async def _send(context: Context, row: Row, cause: str) -> None:
    """Ask GitHub to run a run again, unless it does so already; else dispatch afresh."""
    async with context.store.read() as tx:
        dispatch = await dispatches.get(tx, row["dispatch_id"])
    assert dispatch is not None
    sent = await _rerun_on_github(context, dispatch, row)
    async with context.store.transaction() as tx:
        await dispatches.settle_rerun(tx, row, "sent" if sent else "impossible")
        if not sent:
            await relay.afresh(tx, dispatch, f"{row['run_id']} attempt {row['from_attempt']}")
        tx.enqueue("publish", f"{dispatch['upstream_repo']}#{dispatch['pr_number']}")
    log.info(
        "re-run",
        backend=dispatch["backend"],
        run=row["run_id"],
        fresh_dispatch=not sent,
        cause=cause,
    )


async def _rerun_on_github(context: Context, dispatch: Row, row: Row) -> bool:
    """Return whether GitHub runs the run again; False when it never will (too old, unknown, not on GitHub)."""
    run_id = row["run_id"]
    if not (run_id.isascii() and run_id.isdigit()):
        return False
    client = context.relay.client(dispatch["backend"], actions="write")
    verb = "rerun" if row["scope"] == "all" else "rerun-failed-jobs"
    try:
        found = await client.getitem(client.path(f"actions/runs/{run_id}"))
        if found["run_attempt"] > row["from_attempt"]:
            return True
        if found["status"] != "completed":
            raise RetryLater(f"run {run_id} has not ended yet", after=STILL_RUNNING)
        await client.post(client.path(f"actions/runs/{run_id}/{verb}"), data={})
    except GitHubRefused as error:
        log.info("cannot be run again", backend=dispatch["backend"], run=run_id, reason=str(error))
        return False
    return True
