"""The task `select`: a pull request's labels have changed, so what was not worth running may be now (key: its key)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.dispatch import commits
from bot.oot.dispatch.decide import decide
from bot.oot.dispatch.redispatch import redispatch
from bot.oot.results.store import dispatches
from bot.oot.results.task_keys import parse_pull, pull_key, request_publish
from bot.oot.verdict.facts import newest, of_own_events
from bot.oot.verdict.verdict import is_skipped

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import PullRow
    from bot.oot.dispatch.decide import Commit
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.dispatch.select_again")


async def request_selection(tx: Transaction, repo: str, number: int | None) -> None:
    """Decide again on a pull request, where any entry is selective."""
    if number is None or tx.replaying:
        return
    allowlist = await allowlists.in_force(tx)
    if allowlist and any(entry.selective for entry in allowlist.entries):
        tx.enqueue("select", pull_key(repo, number))


async def select_again(context: Context, task: Task) -> None:
    """Dispatch the newest head to the backends that did not run it, where the rules are for it now."""
    repo, number = parse_pull(task)
    async with context.store.read() as tx:
        record, allowlist = await record_reads.get(tx, repo, number), await allowlists.in_force(tx)
        if record is None or allowlist is None or not await skipped(tx, record):
            return
        commit = await commits.known_commit(tx, allowlist, record)
    async with context.store.transaction() as tx:
        await dispatches.lock_pull(tx, repo, number)
        record = await record_reads.get(tx, repo, number)
        if record is None or record["head_sha"] != commit.sha:
            return
        commit = replace(commit, labels=frozenset(record["labels"] or ()), draft=bool(record["draft"]))
        if sent := await _send(tx, context.settings, record, commit):
            request_publish(tx, repo, number)
    log.info("selected again", repo=repo, pull=number, head=commit.sha, backends=sent)


async def skipped(tx: Transaction, record: PullRow) -> list[DispatchRow]:
    """Return the dispatches of a pull request's newest head that count and that a rule decided against."""
    repo, number, head = record["repo"], record["number"] or 0, record["head_sha"] or ""
    rows = await dispatches.read_for_pull(tx, repo, number, heads={head})
    counting = newest([row for row in of_own_events(rows) if row["base_ref"] == record["base_ref"]])
    return [row for row in counting.values() if is_skipped(row)]


async def _send(tx: Transaction, settings: Settings, record: PullRow, commit: Commit) -> int:
    """Dispatch a head to the backends that the rules are for now; returns how many."""
    allowlist = await allowlists.in_force(tx)
    if allowlist is None:
        return 0
    same = await commits.read_same(tx, settings, allowlist.entries, record["repo"], commit.sha)
    commit, sent = replace(commit, same=same), 0
    for row in await skipped(tx, record):
        entry = allowlist.find(row["backend"])
        decision = decide(entry, commit, prefixes=settings.label_prefixes) if entry else None
        if decision and decision.send:
            await redispatch(tx, row, f"selected by {decision.rule}")
            sent += 1
    return sent
