"""Which backends an event's commit is recorded for to be sent, and for which it is recorded why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from bot.oot.dispatch import commits
from bot.oot.dispatch.decide import decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist, Entry
    from bot.oot.dispatch.decide import Commit

UNSENT = frozenset({"pending", "held"})  # a closing, and what comes late, is not decided on


class Choice(NamedTuple):
    """The state a dispatch is recorded in, and the reason where a rule decided against it."""

    state: str
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Decides on an event's commit for one backend after another."""

    commit: Commit | None  # None: every backend is sent it
    prefixes: Sequence[str]

    def choose(self, entry: Entry, state: str) -> Choice:
        """Return how to record a dispatch that would be recorded in `state`."""
        if self.commit is None or state not in UNSENT or not entry.selective:
            return Choice(state)
        decision = decide(entry, self.commit, prefixes=self.prefixes)
        return Choice(state) if decision.send else Choice(decision.state, decision.why)


async def make_chooser(
    tx: Transaction, settings: Settings, allowlist: Allowlist, repo: str, commit: Commit | None
) -> Chooser:
    """Return what decides on a commit, with the results that backends can take over."""
    if commit is not None:
        same = await commits.read_same(tx, settings, allowlist.entries, repo, commit.sha)
        commit = replace(commit, same=same)
    return Chooser(commit=commit, prefixes=settings.label_prefixes)
