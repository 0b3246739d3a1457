"""The task `bisect_run`: upstream's own CI is run on a commit (key: `search/number of the step`).

A run that exists there is run again; otherwise a tag starts one, where the settings say how it is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.trunk import branch_history, column_runs
from bot.core.errors import GitHubRefused, GiveUp, RetryLater
from bot.oot.culprits import rows
from bot.oot.culprits.settings import CulpritsSettings
from bot.oot.culprits.start import KIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.cells import Run
    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.culprits.tables import BisectRow, StepRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.culprits.own_runs")

GOES_ON = 120.0  # seconds until a run that has not ended is looked at again
NO_RUN = "no run of it exists there, and CI_BISECT_TAG does not say how to start one"
EXISTS = 422  # of a tag


async def run_commit(context: Context, task: Task) -> None:
    """Have upstream's CI run the commit of a step, unless that was done."""
    identifier, _, number = task.key.rpartition("/")
    if not number.isdigit():
        raise GiveUp(f"{task.key!r} names no step")
    async with context.store.read() as tx:
        search, step = await rows.get_search(tx, identifier), await rows.get_step(tx, identifier, int(number))
        runs = await _runs(context, search, step) if search and step else []
    if search is None or step is None or step["outcome"] is not None or step["sent_at"] is not None:
        return
    try:
        await _start(context, search, step, runs)
    except GitHubRefused as error:
        await _settle(
            context, step, outcome="refused", detail=f"GitHub refused to run it: {error.message}"[:300]
        )
        log.warning("not run", search=identifier, sha=step["sha"], reason=error.message)


async def _runs(context: Context, search: BisectRow, step: StepRow) -> list[Run]:
    async with context.store.read() as tx:
        branch = await branch_history.find_branch(tx, search["upstream_repo"], search["branch"])
        if branch is None:
            return []
        sha = step["sha"]
        found = await column_runs.read_runs(tx, context.settings, branch, [sha], search["job"])
    return found.get(sha, [])


async def _start(context: Context, search: BisectRow, step: StepRow, runs: Sequence[Run]) -> None:
    repo, pattern = search["upstream_repo"], context.settings.of(CulpritsSettings).ci_bisect_tag
    if runs:
        client = context.github.client(repo, actions="write")
        newest = max(runs, key=lambda run: (run.run_id, run.attempt))
        jobs = [run for run in runs if (run.run_id, run.attempt) == (newest.run_id, newest.attempt)]
        await _run_again(context, client, step, jobs)
        return
    if pattern is None:
        await _settle(context, step, outcome="no_result", detail=NO_RUN)
        return
    workflow = search["job"].partition(" / ")[0].replace(" ", "-")
    name = pattern.format(workflow=workflow, sha=step["sha"])
    client = context.github.client(repo, contents="write")
    try:
        await client.post(client.path("git/refs"), data={"ref": f"refs/tags/{name}", "sha": step["sha"]})
    except GitHubRefused as error:
        if error.status != EXISTS or "exists" not in error.message.lower():
            raise
    await _sent(context, step, tag=name)


async def _run_again(context: Context, client: Client, step: StepRow, jobs: Sequence[Run]) -> None:
    """Run a job again, or where it has shards the whole run; the attempt it was at is recorded first."""
    run_id = jobs[0].run_id
    found = await client.getitem(client.path(f"actions/runs/{run_id}"))
    attempt = int(found["run_attempt"])
    if step["from_attempt"] is not None and attempt > step["from_attempt"]:
        await _sent(context, step)  # an earlier request has done it
        return
    if found["status"] != "completed":
        raise RetryLater(f"run {run_id} has not ended yet", after=GOES_ON)
    async with context.store.transaction() as tx:
        await rows.change_step(tx, step, run_id=run_id, from_attempt=attempt)
    alone = len(jobs) == 1 and jobs[0].id.isdigit()
    path = f"actions/jobs/{jobs[0].id}/rerun" if alone else f"actions/runs/{run_id}/rerun"
    await client.post(client.path(path), data={})
    await _sent(context, step)


async def _sent(context: Context, step: StepRow, *, tag: str | None = None) -> None:
    async with context.store.transaction() as tx:
        await rows.change_step(tx, step, sent_at=tx.now, **({"tag": tag} if tag else {}))
        tx.enqueue(KIND, step["bisect_id"])
    log.info("run for a search", search=step["bisect_id"], sha=step["sha"], tag=tag)


async def _settle(context: Context, step: StepRow, *, outcome: str, detail: str) -> None:
    async with context.store.transaction() as tx:
        await rows.change_step(tx, step, outcome=outcome, detail=detail, sent_at=tx.now, ended_at=tx.now)
        tx.enqueue(KIND, step["bisect_id"])
