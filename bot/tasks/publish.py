"""publish: a pull request's check runs are made true again (key: `owner/repo#number`).

Each run compares what should be there with what we wrote last and acts on the difference. A check run's intent is
recorded before it is made, so that one made by a process that died is found again instead of made twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot import query
from bot.domain import comment, desired
from bot.errors import GitHubRefused, GiveUp
from bot.store import pulls
from bot.tasks.comment import body_of

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.desired import Write
    from bot.github import Client
    from bot.query import Head, PullState
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.publish")

Row = dict[str, Any]
MOST_HEADS = 10  # newest heads whose check runs are kept true
QUIET_AGAIN = 61.0  # seconds: a backend nobody can confirm is looked at again once it was quiet long enough
NOT_FOUND = 404


async def run(context: Context, task: Task) -> None:
    """Make the check runs of a pull request what they should be, and see that its comment follows."""
    repo, number = parse_key(task.key)
    async with context.store.read() as tx:
        state = await query.pull_state(tx, context.settings, repo, number)
        todo = await _writes(tx, context, state)
    if not context.settings.is_upstream(repo) or not state.heads:
        return
    now = context.clock.now()
    refusals = []
    for write in todo:
        if write.not_before <= now:
            try:
                await _write(context, state, write)
            except GitHubRefused as error:
                log.warning("check run refused", name=write.check.name, reason=str(error))
                refusals.append(f"{write.check.name}: {error}")
    async with context.store.transaction() as tx:
        later = [write.not_before for write in todo if write.not_before > now]
        if later:
            tx.enqueue("publish", task.key, delay=(min(later) - now) / 1000)
        if _waits_for_quiet(state):
            tx.enqueue("publish", task.key, delay=QUIET_AGAIN)
        await _follow_with_comment(tx, context, state, task.key)
    if refusals:
        raise GiveUp("; ".join(refusals))


def parse_key(key: str) -> tuple[str, int]:
    """Return repository and number of a `owner/repo#number` key; raises GiveUp."""
    repo, _, number = key.rpartition("#")
    if not repo or not number.isdigit():
        raise GiveUp(f"{key!r} names no pull request")
    return repo, int(number)


async def _writes(tx: Transaction, context: Context, state: PullState) -> list[Write]:
    settings = context.settings
    present = await pulls.checks_of(tx, state.repo, state.number)
    terms = desired.Terms(
        prefix=settings.check_prefix,
        label_prefixes=settings.label_prefixes,
        labels=state.labels,
        gate=await pulls.gate_exists(tx, state.repo, f"{settings.check_prefix} / gate"),
        interval=settings.publish_interval * 1000,
    )
    todo = []
    for head in state.heads[:MOST_HEADS]:
        rows = [row for row in present if row["head_sha"] == head.view.head_sha]
        told = {key: facts.dispatch for key, facts in head.facts.items()}
        todo += desired.writes(head.view, told, head.entries, rows, terms)
    return todo


async def _write(context: Context, state: PullState, write: Write) -> None:
    client = context.github.client(state.repo, checks="write")
    check_run_id = write.check_run_id
    if check_run_id is None:
        check_run_id = await _find_or_create(context, client, state, write)
    else:
        check_run_id = await _update(client, check_run_id, write)
    async with context.store.transaction() as tx:
        await pulls.wrote_check(
            tx,
            write.check.external_id,
            check_run_id=check_run_id,
            status=write.check.status,
            conclusion=write.check.conclusion,
            digest=write.digest,
            basis=write.basis,
            label_ended=write.label_ended,
        )


async def _find_or_create(context: Context, client: Client, state: PullState, write: Write) -> int:
    check = write.check
    async with context.store.transaction() as tx:
        fresh = await pulls.intend_check(
            tx,
            {
                "external_id": check.external_id,
                "upstream_repo": state.repo,
                "pr_number": state.number,
                "head_sha": check.head_sha,
                "name": check.name,
                "status": "intended",
                "conclusion": None,
                "basis": write.basis,
                "label_ended": False,
            },
        )
    if not fresh and (made := await _find(context, client, write)):
        return await _update(client, made, write)
    created = await client.post(client.path("check-runs"), data=check.body())
    return int(created["id"])


async def _find(context: Context, client: Client, write: Write) -> int | None:
    """Return the check run an earlier attempt made, recognised by its external_id and our App."""
    url = client.path("commits/{sha}/check-runs{?check_name,filter,app_id,per_page}")
    wanted = {
        "sha": write.check.head_sha,
        "check_name": write.check.name,
        "filter": "all",
        "app_id": str(context.github.app_id),
        "per_page": "100",
    }
    async for run in client.getiter(url, wanted, iterable_key="check_runs"):
        if run["external_id"] == write.check.external_id and run["app"]["id"] == context.github.app_id:
            return int(run["id"])
    return None


async def _update(client: Client, check_run_id: int, write: Write) -> int:
    """Update a check run by id; one that GitHub has deleted is made again."""
    body = write.check.body()
    try:
        await client.patch(client.path(f"check-runs/{check_run_id}"), data=body)
    except GitHubRefused as error:
        if error.status != NOT_FOUND:
            raise
        created = await client.post(client.path("check-runs"), data=body)
        return int(created["id"])
    return check_run_id


def _waits_for_quiet(state: PullState) -> bool:
    """Whether a backend that GitHub cannot confirm waits for a minute without news."""
    return any(_unconfirmable(head) for head in state.heads[:MOST_HEADS])


def _unconfirmable(head: Head) -> bool:
    entries = head.entries
    return any(
        backend.state == "confirming"
        and (entry := entries.get(backend.repo.casefold()))
        and not entry.confirm
        for backend in head.view.backends
    )


async def _follow_with_comment(tx: Transaction, context: Context, state: PullState, key: str) -> None:
    """Ask for the comment when what it should say is not what it says."""
    settings = context.settings
    head = state.current
    if settings.comment == "off" or head is None:
        return
    present = await pulls.comment(tx, state.repo, state.number)
    if present is None and settings.comment == "failures" and not comment.worth_saying(head.view):
        return
    if present is None or present["digest"] != body_of(head.view)[1]:
        interval = settings.publish_interval
        tx.enqueue("comment", key, delay=interval, patience=6 * interval)
