"""Steps of a search: recorded, sent to a backend or to upstream's own CI, and settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from bot.core import text
from bot.core.errors import GitHubRefused, GiveUp, RetryLater
from bot.core.escaping import web_url
from bot.ingest import deliveries, inbox
from bot.jobs import branch_history, branch_reads
from bot.oot.culprits import job_runs, rows
from bot.oot.culprits.feature import CulpritsSettings
from bot.oot.culprits.start import SEARCH_KIND
from bot.oot.dispatch.rows import backend_columns, new_dispatch
from bot.oot.dispatch.send_dispatch import BISECT
from bot.oot.results import dispatches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.jobs.branch_reads import Branch
    from bot.jobs.cells import Run
    from bot.jobs.tables import CommitRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.culprits.advance import Situation
    from bot.oot.culprits.job_runs import SignalRun
    from bot.oot.culprits.search import NextStep
    from bot.oot.culprits.tables import BisectRow, Signal, StepRow
    from bot.oot.results.tables import DispatchEvent, DispatchRow
    from bot.queue.tasks import Task

OWN_RUNS = "bisect_run"  # kind of the task that has upstream's own CI run a commit
log = structlog.get_logger("bot.oot.culprits.steps")

GOES_ON = 120.0  # seconds until a run that has not ended is looked at again
NO_RUN = "no run of it exists there, and CI_BISECT_TAG does not say how to start one"
EXISTS = 422  # of a tag
OutcomeWord = Literal["good", "bad", "unbuildable", "no_result", "silent", "refused"]
UNANSWERED = frozenset({"never_started", "not_run"})  # states of a dispatch
NOT_SENT_STATES = frozenset({"failed", "not_installed", "superseded", "cancelled"})
JOBS_NAMED = 3


class EndedStep(NamedTuple):
    """How a step ended."""

    outcome: OutcomeWord
    detail: str


class WaitingSteps(NamedTuple):
    """Steps that are still under way, and when the next of them has taken too long, in milliseconds."""

    steps: int
    until: int | None


async def record_steps(
    tx: Transaction, settings: Settings, situation: Situation, steps: Sequence[NextStep]
) -> list[StepRow]:
    """Record steps together with what sends them, so that none is lost or sent twice."""
    number = max((step["number"] for step in situation.steps), default=0)
    commits = {row["sha"]: row for row in situation.commits}
    made: list[StepRow] = []
    for at, step in enumerate(steps, number + 1):
        row = _new_step(tx, situation, step, at)
        if situation.entry is None:
            tx.enqueue(OWN_RUNS, f"{situation.search['id']}/{at}")
        else:
            await _dispatch(tx, settings, situation, situation.entry, step=row, commit=commits[step.sha])
        made.append(row)
    await rows.add_steps(tx, made)
    return made


def push_body(
    settings: Settings, branch: Branch, search: BisectRow, step: StepRow, commit: CommitRow
) -> dict[str, Any]:
    """Return the push of a commit to the branch as GitHub would send it, with its purpose."""
    repository, github = branch.repository, web_url(settings.github_api_url)
    name = repository["full_name"]
    owner, _, short = name.partition("/")
    head = {"id": commit["sha"], "message": commit["title"]}
    about: dict[str, Any] = {"id": search["id"], "signal": search["job"], "purpose": step["purpose"]}
    if search["test"]:
        about["test"] = search["test"]
    return {
        "ref": f"refs/heads/{branch.name}",
        "before": commit["parent"] or "0" * 40,
        "after": commit["sha"],
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": f"{github}/{name}/commit/{commit['sha']}",
        "commits": [head],
        "head_commit": head,
        "pusher": {"name": commit["author"] or "ootbot"},
        "repository": {
            "id": repository["repository_id"],
            "name": short,
            "full_name": name,
            "html_url": f"{github}/{name}",
            "clone_url": f"{github}/{name}.git",
            "default_branch": repository["default_branch"],
            "owner": {"login": owner, "name": owner},
        },
        BISECT: about,
    }


async def run_commit(context: Context, task: Task) -> None:
    """Make upstream's CI run the commit of a step, unless that was done."""
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


async def settle_steps(
    tx: Transaction,
    branch: Branch,
    signal: Signal,
    steps: Sequence[StepRow],
    runs: Sequence[SignalRun],
    *,
    job_timeout: int,
) -> WaitingSteps:
    """Record the outcomes of steps that now have one; `job_timeout` is in milliseconds."""
    open_steps = [step for step in steps if step["outcome"] is None]
    ids = {step["dispatch_id"] for step in open_steps if step["dispatch_id"]}
    known = await dispatches.get_by_id(tx, ids)
    shas = sorted({step["sha"] for step in open_steps})
    others = await job_runs.runs_without_job(tx, branch, signal, ids, shas) if ids else {}
    limits = []
    for step in open_steps:
        dispatch = known.get(step["dispatch_id"] or "")
        ended = _by_runs(step, runs) or _by_dispatch(step, dispatch, others)
        since = _since(step, dispatch)
        if ended is None and since is not None and tx.now - since >= job_timeout:
            ended = EndedStep("silent", f"no answer within {text.duration(job_timeout / 1000)}")
        if ended is None:
            limits += [] if since is None else [since + job_timeout]
            continue
        step["outcome"], step["detail"], step["ended_at"] = *ended, tx.now
        await rows.change_step(tx, step, outcome=ended.outcome, detail=ended.detail, ended_at=tx.now)
    return WaitingSteps(
        steps=sum(step["outcome"] is None for step in open_steps), until=min(limits, default=None)
    )


def _new_step(tx: Transaction, situation: Situation, step: NextStep, number: int) -> StepRow:
    return {
        "bisect_id": situation.search["id"],
        "number": number,
        "sha": step.sha,
        "purpose": step.purpose.value,
        "delivery_id": None,
        "dispatch_id": None,
        "run_id": None,
        "from_attempt": None,
        "tag": None,
        "outcome": None,
        "detail": None,
        "created_at": tx.now,
        "sent_at": None,
        "ended_at": None,
    }


async def _dispatch(
    tx: Transaction,
    settings: Settings,
    situation: Situation,
    entry: Entry,
    *,
    step: StepRow,
    commit: CommitRow,
) -> None:
    search = situation.search
    guid = deliveries.content_guid(f"bisect {search['id']} {step['number']}")
    body = push_body(settings, situation.branch, search, step, commit)
    # its event has no handler: it was never pushed, and is no record
    await inbox.store_delivery(tx, deliveries.to_incoming(guid, BISECT, body, source=BISECT))
    event: DispatchEvent = {
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": search["upstream_repo"],
        "event_type": "push",
        "action": None,
        "pr_number": None,
        "head_sha": commit["sha"],
        "base_sha": commit["parent"],
        "base_ref": None,
        "ref": f"refs/heads/{situation.branch.name}",
        "labels": [],
    }
    row = new_dispatch(tx, event, backend_columns(entry, event["event_type"]), state="pending")
    await dispatches.add_dispatch(tx, row)
    tx.enqueue("dispatch", row["id"])
    step["delivery_id"], step["dispatch_id"], step["sent_at"] = guid, row["id"], tx.now


async def _runs(context: Context, search: BisectRow, step: StepRow) -> list[Run]:
    async with context.store.read() as tx:
        branch = await branch_history.find_branch_of(tx, search["upstream_repo"], search["branch"])
        if branch is None:
            return []
        sha = step["sha"]
        runs = await branch_reads.read_runs(tx, context.settings, branch, [sha], search["job"])
    return runs.get(sha, [])


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
    """Run a job again, or the whole run if the job has shards; its current attempt is recorded first."""
    run_id = jobs[0].run_id
    run = await client.getitem(client.path(f"actions/runs/{run_id}"))
    attempt = int(run["run_attempt"])
    if step["from_attempt"] is not None and attempt > step["from_attempt"]:
        await _sent(context, step)  # an earlier request has done it
        return
    if run["status"] != "completed":
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
        tx.enqueue(SEARCH_KIND, step["bisect_id"])
    log.info("run for a search", search=step["bisect_id"], sha=step["sha"], tag=tag)


async def _settle(context: Context, step: StepRow, *, outcome: str, detail: str) -> None:
    async with context.store.transaction() as tx:
        await rows.change_step(tx, step, outcome=outcome, detail=detail, sent_at=tx.now, ended_at=tx.now)
        tx.enqueue(SEARCH_KIND, step["bisect_id"])


def _since(step: StepRow, dispatch: DispatchRow | None) -> int | None:
    """Return when an answer could first be expected."""
    if dispatch is not None:
        return dispatch["dispatched_at"] if dispatch["state"] == "sent" else None
    return step["sent_at"]


def _by_runs(step: StepRow, runs: Sequence[SignalRun]) -> EndedStep | None:
    """Return what the run of a step says, by its last attempt."""
    if step["dispatch_id"]:
        mine = [run for run in runs if run.dispatch_id == step["dispatch_id"]]
    elif step["run_id"] is not None:
        mine = [
            run
            for run in runs
            if run.run_id == str(step["run_id"]) and run.attempt > (step["from_attempt"] or 0)
        ]
    else:  # a tag: whatever begins on the commit from then on
        since = step["sent_at"]
        mine = [
            run for run in runs if run.sha == step["sha"] and since and run.at is not None and run.at >= since
        ]
    if not mine:
        return None
    last = max(mine, key=lambda run: (run.attempt, run.run_id))
    if last.word == "pending":
        return None
    if last.word == "no_result" and last.why == job_runs.SILENT:
        return EndedStep("silent", last.why)
    return EndedStep(last.word, last.why)


def _by_dispatch(
    step: StepRow, dispatch: DispatchRow | None, others: Mapping[str, Sequence[str]]
) -> EndedStep | None:
    if step["dispatch_id"] is None:
        return None
    if dispatch is None:
        return EndedStep("no_result", "its dispatch is not kept any more")
    if dispatch["state"] in UNANSWERED:
        return EndedStep("silent", dispatch["error"] or "no report came")
    if dispatch["state"] in NOT_SENT_STATES:
        return EndedStep("refused", dispatch["error"] or "it could not be dispatched")
    if ran := others.get(dispatch["id"]):
        return EndedStep("no_result", f"only {text.listing(ran, limit=JOBS_NAMED)} ran")
    return None
