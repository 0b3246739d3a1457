"""A failure on a commit as pages show it, and the list of all, each once. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import text
from bot.oot.pages.failed_jobs import UPSTREAM
from bot.web.failures import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.pages.failed_jobs import FailedJob
    from bot.web.blocks import BlockLine
    from bot.web.failures import LogLine, Place

SHARED = "shared"
MACHINE = "infrastructure"
_ALIKE = 60  # characters by which a message is found in a line of a log
NOTHING_KNOWN = Standing(word="", why="", tone="bad")
_RANKS = {"new": 0, "new test": 0, "": 1}  # by word; all others are likely not the change's


def rank_of(standing: Standing) -> int:
    """Return the place of a failure among others: what is likely the change's comes first."""
    return _RANKS.get(standing.word, len(_RANKS))


@dataclass(frozen=True, kw_only=True)
class Detail:
    """What backends reported of a failed test: those that said the same as one."""

    labels: tuple[str, ...]
    place: str  # file and line
    message: str
    trace: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failure."""

    name: str  # of the test, the job or the backend
    url: str | None
    jobs: tuple[FailedJob, ...]  # in which it is, without those that the page does not know
    places: tuple[Place, ...]
    standings: tuple[Standing, ...] = ()
    line: LogLine | None = None
    message: str = ""
    details: tuple[Detail, ...] = ()
    is_test: bool = False
    unnamed: int = 0  # more failed tests of the job, which are only counted

    @property
    def standing(self) -> Standing:
        """How it compares: the first evidence that says anything; the nearest comes first."""
        return next((one for one in self.standings if one.word), next(iter(self.standings), NOTHING_KNOWN))

    @property
    def others(self) -> tuple[Standing, ...]:
        """What else is known of it elsewhere."""
        shown = self.standing
        return tuple(one for one in dict.fromkeys(self.standings) if one is not shown and one.word)

    @property
    def rank(self) -> int:
        """Its place among others: what is new comes first, then what nothing is known of."""
        return rank_of(self.standing)

    @property
    def is_known(self) -> bool:
        """Whether it is likely not the change's: it also fails without it, or passes as often."""
        return self.standing.word not in _RANKS or self.infra

    @property
    def infra(self) -> bool:
        """Whether the machine failed, not what ran on it."""
        return self.line is not None and self.line.infra

    @property
    def line_is_news(self) -> bool:
        """Whether the line of the log says what no message does."""
        said = [self.message, *(detail.message for detail in self.details)]
        firsts = [one.split("\n")[0].strip()[:_ALIKE] for one in said if one.strip()]
        return self.line is not None and not any(one in self.line.text for one in firsts)

    @property
    def blocking(self) -> bool:
        """Whether it keeps the gate from passing."""
        return any(job.blocking for job in self.jobs)

    @property
    def failing_on(self) -> tuple[str, ...]:
        """Where it fails."""
        own = [UPSTREAM for one in self.places if one.upstream and not one.passed]
        theirs = [one.label for one in self.places if not one.upstream and not one.passed]
        return tuple(dict.fromkeys([*theirs, *own]))

    @property
    def whose(self) -> str:
        """Whose it is: a backend's, upstream's, or shared."""
        return self.failing_on[0] if len(self.failing_on) == 1 else SHARED


@dataclass(frozen=True, kw_only=True)
class FailureList:
    """All failures of a commit, those first that are likely the change's."""

    first: tuple[Failure, ...]  # new, of which nothing is known, or that block merging
    aside: tuple[Failure, ...]  # likely not the change's
    tests_left: int
    links: tuple[BlockLine, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.first) + len(self.aside) + self.tests_left

    @property
    def summary(self) -> str:
        """How many of them are new, known, flaky or of a machine, as in "2 failures: 1 new, 1 known"."""
        counted = self._counted((*self.first, *self.aside))
        left = f", {self.tests_left} more tests" if self.tests_left else ""
        return f"{text.plural(self.total, 'failure')}: {counted}{left}"

    @property
    def aside_summary(self) -> str:
        """The same of those that are likely not the change's."""
        return self._counted(self.aside)

    def _counted(self, failures: Iterable[Failure]) -> str:
        counts = Counter(MACHINE if one.infra else one.standing.word for one in failures)
        order = sorted(counts, key=lambda word: (_RANKS.get(word, len(_RANKS)), word))
        parts = [f"{counts[word]} {word or 'without a baseline yet'}" for word in order]
        return ", ".join(parts)
