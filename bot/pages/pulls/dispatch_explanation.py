"""Who was asked to run a pull request's newest head, and why not: the outcome, and the rule that decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch import commits, machines
from bot.oot.dispatch.decide import decide
from bot.oot.results import dispatches
from bot.oot.verdict.verdict import SKIPPED_BY, is_skipped, newest_by_backend, of_own_events
from bot.oot.verdict.view import OK_TO_TEST
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.dispatch.decide import Decision
    from bot.oot.results.tables import DispatchRow
    from bot.web.blocks import PullSubject, Tone

Outcome = Literal["sent", "waiting", "skipped"]
NEVER = "no event of this commit was recorded for it: it was listed later, or takes part in other actions"
ASKED = "a command asked for it, or what decides has changed since"
NOT_SENT_REASONS = {
    "failed": "GitHub refused it",
    "not_installed": "the App cannot reach it",
    "superseded": "it was dropped before it was sent",
    "cancelled": "it was cancelled",
}
TONES: dict[str, Tone] = {"sent": "good", "waiting": "wait", "skipped": "idle"}
NOT_SENT_OUTCOMES = ("waiting", "skipped")
MOST_LINES = 20  # that are not folded


@dataclass(frozen=True, kw_only=True)
class AskedBackend:
    """Whether one backend was sent a head."""

    backend: str
    label: str
    level: int
    outcome: Outcome
    rule: str  # that decided
    why: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Who was asked to run a pull request's newest head."""

    repo: str
    number: int
    head_sha: str
    asked: tuple[AskedBackend, ...]  # in the order of the allowlist


async def explain_pull(tx: Transaction, settings: Settings, repo: str, number: int) -> Explanation | None:
    """Explain who was asked; None for an unknown pull request, or while no allowlist is in force."""
    record, allowlist = await record_store.read_pull(tx, repo, number), await allowlists.read_in_force(tx)
    if record is None or allowlist is None:
        return None
    commit = await commits.known_commit(tx, allowlist, record)
    same = await commits.read_same(tx, settings, allowlist.entries, record["repo"], commit.sha)
    commit = replace(commit, same=same)
    rows = await _counting(tx, record)
    asked = [
        await _explain(
            tx, entry, decide(entry, commit, prefixes=settings.label_prefixes), rows.get(entry.key)
        )
        for entry in allowlist.entries
    ]
    return Explanation(repo=record["repo"], number=number, head_sha=commit.sha, asked=tuple(asked))


async def describe_asked(tx: Transaction, subject: PullSubject) -> list[Block]:
    """List the backends, unless all were simply sent the newest head."""
    explanation = await explain_pull(tx, subject.settings, subject.repo, subject.number)
    if explanation is None or explanation.head_sha != subject.head_sha:
        return []
    sent = [_line(backend) for backend in explanation.asked if backend.outcome == "sent"]
    others = [
        _line(backend)
        for outcome in NOT_SENT_OUTCOMES
        for backend in explanation.asked
        if backend.outcome == outcome
    ]
    if not others:
        return []
    return [
        Block(
            heading="Who was asked, and why not",
            lines=tuple(others[:MOST_LINES]),
            folded=(*others[MOST_LINES:], *sent),
            summary=f"{len(sent)} sent"
            + (f", {len(others) - MOST_LINES} more" if others[MOST_LINES:] else ""),
        )
    ]


async def _counting(tx: Transaction, record: PullRow) -> dict[str, DispatchRow]:
    """Return, by backend, the counting dispatches of the newest head for its base branch."""
    repo, number = record["repo"], record["number"] or 0
    rows = await dispatches.read_dispatches_of_pull(tx, repo, number, heads={record["head_sha"] or ""})
    return newest_by_backend([row for row in of_own_events(rows) if row["base_ref"] == record["base_ref"]])


async def _explain(
    tx: Transaction, entry: Entry, decision: Decision, row: DispatchRow | None
) -> AskedBackend:
    outcome, rule, why = await _outcome(tx, decision, row)
    return AskedBackend(
        backend=entry.repo, label=entry.label, level=int(entry.level), outcome=outcome, rule=rule, why=why
    )


async def _outcome(tx: Transaction, decision: Decision, row: DispatchRow | None) -> tuple[Outcome, str, str]:
    """Return the outcome for a backend, the rule that decided and the reason."""
    if row is None:
        return ("skipped", "events", NEVER) if decision.send else ("skipped", decision.rule, decision.why)
    state = row["state"]
    if is_skipped(row):
        return "skipped", state.removeprefix(SKIPPED_BY), row["error"] or ""
    if state == "waiting":
        return "waiting", "machines", await machines.describe_wait(tx, row)
    if state == "held":
        return "waiting", "policy", f"needs {OK_TO_TEST}"
    if state in NOT_SENT_REASONS and row["dispatched_at"] is None:
        return "skipped", state, row["error"] or NOT_SENT_REASONS[state]
    rule, why = (decision.rule, decision.why) if decision.send else ("asked", ASKED)
    return "sent", rule, why


def _line(backend: AskedBackend) -> BlockLine:
    said = backend.why.startswith(backend.outcome)  # as in "waiting for a machine"
    return BlockLine(
        text=f"{backend.label}: {backend.why if said else f'{backend.outcome}, {backend.why}'}",
        tone=TONES[backend.outcome],
    )
