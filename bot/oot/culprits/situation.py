"""Everything that is known of a search at one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.oot.culprits import verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.culprits.job_runs import JobRun
    from bot.oot.culprits.search import Decision, Seen, Terms
    from bot.oot.culprits.tables import BisectRow, Signal, StepRow

UPSTREAM = "upstream"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A search with its commits, oldest first, and what ran there."""

    search: BisectRow
    entry: Entry | None  # None: upstream's own CI
    branch: Branch
    signal: Signal
    commits: Sequence[CommitRow]
    runs: Sequence[JobRun]
    steps: list[StepRow]
    terms: Terms
    seen: Sequence[Seen]

    @property
    def label(self) -> str:
        """What people call the side that is run."""
        return self.entry.label if self.entry else self.search["backend"] or UPSTREAM

    def observed(self, seen: Sequence[Seen]) -> Situation:
        """Return the same with other knowledge of its commits."""
        return replace(self, seen=seen)

    def job_timeout(self, settings: Settings) -> int:
        """Return how long a step may go unanswered, in milliseconds."""
        return ((self.entry and self.entry.job_timeout) or settings.job_timeout) * 1000

    def between(self, decision: Decision) -> str:
        """Return in words where the culprit is, as far as that is known."""
        good = 0 if decision.good is None else decision.good
        bad = len(self.commits) - 1 if decision.bad is None else decision.bad
        return verdict.between(self.commits[good]["sha"], self.commits[bad]["sha"], bad - good)

    def progress(self, decision: Decision) -> str:
        """Return in words how far the search is."""
        return self.between(decision)
