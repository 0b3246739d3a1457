"""Conditions of gates that have waited long for backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import text
from bot.core.feature import Condition, ConditionSubject
from bot.ingest import record_store
from bot.notify.receivers import NotifySettings
from bot.oot.publish import gates, rows
from bot.oot.publish.check_text import gate_name
from bot.oot.results.task_keys import pull_key
from bot.oot.verdict import pull_state
from bot.oot.verdict.gate import GateState

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.feature import ConditionScope
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.oot.publish.tables import CheckRow

EVENT = "gate_waiting"
MOST_LOOKED_AT, MOST_JUDGED = 200, 50  # gates of one check


async def read_conditions(context: Context, tx: Transaction, scope: ConditionScope) -> list[Condition]:
    """Return the gates that have waited long, and those told of that no longer wait."""
    settings = context.settings
    before = tx.now - settings.of(NotifySettings).notify_gate_wait * 1000
    name = gate_name(settings.check_prefix)
    conditions: dict[str, Condition] = {}
    judged = 0
    for row in await rows.unfinished_named(tx, name, before=before, limit=MOST_LOOKED_AT):
        pull = await _open_pull(tx, row)
        if pull is None or scope.hidden.has(row["upstream_repo"]) or judged >= MOST_JUDGED:
            continue
        key = _gate_key(row)
        if key in scope.told_of(EVENT):
            conditions[key] = _gate_condition(row, holds=True)
            continue
        judged += 1
        if condition := await _judge_gate(tx, settings, row, pull, before):
            conditions[key] = condition
    over = scope.told_of(EVENT) - conditions.keys()
    gone = [
        Condition(event=EVENT, key=key, holds=False, heading="", subject=ConditionSubject()) for key in over
    ]
    return [*conditions.values(), *gone]


async def _open_pull(tx: Transaction, row: CheckRow) -> PullRow | None:
    """Return the open pull request whose head has this gate, if there is one."""
    if row["pr_number"] is None:
        return None
    pull = await record_store.read_pull(tx, row["upstream_repo"], row["pr_number"])
    current = pull is not None and pull["state"] == "open" and pull["head_sha"] == row["head_sha"]
    return pull if current else None


async def _judge_gate(
    tx: Transaction, settings: Settings, row: CheckRow, pull: PullRow, before: int
) -> Condition | None:
    number = row["pr_number"] or 0
    state = await pull_state.read_pull(tx, settings, row["upstream_repo"], number, newest=1)
    if state.current is None:
        return None
    shown = await gates.read_shown_gates(tx, settings, state, [state.current])
    gate = shown[row["head_sha"]].gate if row["head_sha"] in shown else None
    if gate is None or gate.state is not GateState.WAITING or gate.waiting_since is None:
        return None
    if gate.waiting_since >= before:
        return None
    since = gate.waiting_since
    awaited = [backend.label for backend in gate.awaited]
    waits = f"for {text.listing(awaited)}, since {text.duration((tx.now - since) / 1000)}"
    lines = (pull["title"], waits) if pull["title"] else (waits,)
    return _gate_condition(row, holds=True, lines=lines, since=since)


def _gate_condition(
    row: CheckRow, *, holds: bool, lines: tuple[str, ...] = (), since: int | None = None
) -> Condition:
    repo, number, sha = row["upstream_repo"], row["pr_number"] or 0, row["head_sha"]
    return Condition(
        event=EVENT,
        key=_gate_key(row),
        holds=holds,
        heading=f"the gate of {pull_key(repo, number)} waits",
        lines=lines,
        since=since,
        subject=ConditionSubject(repo=repo, path=f"/{repo}/pull/{number}?sha={sha}"),
    )


def _gate_key(row: CheckRow) -> str:
    return f"{pull_key(row['upstream_repo'], row['pr_number'] or 0)}@{row['head_sha']}"
