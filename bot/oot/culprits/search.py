"""Which commits are to be run next, or which one is the culprit? Pure: the rules of docs/culprits.md."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS_MOST = 5  # on one commit, after which it is left alone where they contradict one another
BAD_RUNS = 2  # that confirm a bad commit, at least
GOODS_MOST = 5  # that confirm the good side
DOUBT = 0.01  # the chance that is accepted of passes that are all by chance
WRONG = 0.001  # the odds of a wrong name that are accepted
UNSEEN_RATE = 0.02  # how often a signal is taken to fail by chance that was not seen to
VAIN_MOST = 2  # steps on a commit that end without a result, after which it is left alone
SILENT_MOST = 3  # commits on which nothing was answered, after which the search is given up


class Purpose(StrEnum):
    """Why a commit is run."""

    SPLIT = "split"
    CONFIRM_GOOD = "confirm_good"
    CONFIRM_BAD = "confirm_bad"


class End(StrEnum):
    """How a search can end, or why it has to begin further back."""

    FOUND = "found"
    FLAKY = "flaky"  # the bad end passes when it is run again
    GOOD_IS_BAD = "good_is_bad"  # the good end fails
    UNCONFIRMED = "unconfirmed"  # a commit cannot be run again
    SILENT = "silent"  # the backend does not answer


@dataclass(frozen=True, kw_only=True)
class SearchTerms:
    """The terms of a search."""

    parallel: int = 1  # commits at once
    flaky_rate: float = 0.0  # how often the signal was seen to fail by chance

    @property
    def goods(self) -> int:
        """How many passes, on the good commit or earlier ones, confirm that it passed before."""
        return goods_needed(self.flaky_rate)


class NextStep(NamedTuple):
    """A commit to be run."""

    sha: str
    purpose: Purpose


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be run now, or how the search ends; neither while steps are under way."""

    steps: tuple[NextStep, ...] = ()
    end: End | None = None
    good: int | None = None  # places: the newest good commit,
    bad: int | None = None  # and the oldest bad one after it
    unconfirmed: str = ""  # the commit that could not be run again


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenCommit:
    """What is known of one commit."""

    sha: str
    good: int = 0  # runs that passed
    bad: int = 0  # runs that failed as the signal does
    asked: bool = False  # a step of this search is under way
    pending: bool = False  # something else runs there
    vain: int = 0  # steps that ended without a result
    silent: int = 0  # steps that were not answered in time; they are vain as well
    unbuildable: bool = False  # something else fails there first

    @property
    def is_good(self) -> bool:
        """Whether it passes: contradictory runs are flakes, unless most of them failed."""
        return self.good > 0 and self.good >= self.bad

    @property
    def is_bad(self) -> bool:
        """Whether it has only failed."""
        return self.bad > 0 and not self.good

    @property
    def is_left_alone(self) -> bool:
        """Whether it is not run any more although its state is unknown."""
        if self.good or self.bad:
            return self.good + self.bad >= RUNS_MOST
        return self.unbuildable or self.vain >= VAIN_MOST


def goods_needed(flaky_rate: float) -> int:
    """Return how many passes confirm the good side of a signal with this rate of chance failures.

    >>> [goods_needed(rate) for rate in (0, 0.005, 0.03, 0.2, 0.6)]
    [1, 1, 2, 3, 5]
    """
    if flaky_rate <= 0:
        return 1
    if flaky_rate >= 1:
        return GOODS_MOST
    return max(1, min(GOODS_MOST, math.floor(math.log(DOUBT) / math.log(flaky_rate)) + 1))


def bads_needed(others: int, flaky_rate: float) -> int:
    """Return how many failures confirm a culprit, if this many later commits may be it instead.

    That all failures were chance is `others * rate^n` times as likely as that the culprit is right. A commit that
    failed early has many others behind it, as what was run since lies before it.

    >>> [bads_needed(others, 0) for others in (0, 2, 3, 125, 126, 4_000)]
    [2, 2, 3, 3, 4, 4]
    >>> [bads_needed(1, rate) for rate in (0.07, 0.2, 1)]
    [3, 5, 5]
    """
    rate = max(flaky_rate, UNSEEN_RATE)
    if rate >= 1:
        return RUNS_MOST
    needed = math.ceil(math.log(WRONG / max(others, 1)) / math.log(rate) - 1e-9)
    return max(BAD_RUNS, min(RUNS_MOST, needed))


def next_steps(commits: Sequence[SeenCommit], terms: SearchTerms) -> Decision:
    """Decide what to run now, or how the search ends."""
    good, bad = _bounds(commits)
    if end := _end_without_result(commits, good):
        return Decision(end=end, good=good, bad=bad, unconfirmed=commits[-1].sha)
    if good is None or bad is None or not _is_confirmed_bad(commits, good):
        return _confirm(_unconfirmed_ends(commits, good), terms, good, bad)
    gap = range(good + 1, bad)
    testable = _testable(commits, gap)
    under_way = any(commits[at].asked for at in gap)  # a round
    if testable:
        chosen = () if under_way else _split(testable, _untestable(commits, gap), terms.parallel)
        steps = tuple(NextStep(commits[at].sha, Purpose.SPLIT) for at in chosen)
        return Decision(steps=steps, good=good, bad=bad)
    if under_way or any(commits[at].pending for at in gap):
        return Decision(good=good, bad=bad)
    if wanted := _unconfirmed_pair(commits, good, bad, terms):
        return _confirm(wanted, terms, good, bad)
    return Decision(end=End.FOUND, good=good, bad=bad)


def most_runs_left(commits: Sequence[SeenCommit], terms: SearchTerms) -> tuple[int, int]:
    """Return the most runs that are left if each has a result, and in how many rounds."""
    good, bad = _bounds(commits)
    first = 0 if good is None else good
    last = len(commits) - 1 if bad is None else bad
    between = len(_testable(commits, range(first + 1, last)))
    rounds = math.ceil(math.log(between + 1, terms.parallel + 1) - 1e-9) if between else 0
    splits = min(between, rounds * terms.parallel)
    ends = int(good is None)
    if not _is_confirmed_bad(commits, good):
        ends += max(0, BAD_RUNS - commits[-1].bad)
    goods = max(0, terms.goods - max(1, _passes(commits, first)))
    if splits:
        pair = bads_needed(last - first, terms.flaky_rate) - 1 + goods
    else:
        confirmed = max(BAD_RUNS if ends else 0, commits[last].bad)
        pair = max(0, bads_needed(_others(commits, last), terms.flaky_rate) - confirmed) + goods
    return ends + splits + pair, rounds + bool(ends) + bool(pair)


def _bounds(commits: Sequence[SeenCommit]) -> tuple[int | None, int | None]:
    """Return the places of the newest good commit and of the oldest bad one after it."""
    bad = None
    for at in range(len(commits) - 1, -1, -1):
        commit = commits[at]
        if commit.is_good:
            return at, bad
        if commit.is_bad:
            bad = at
    return None, bad


def _end_without_result(commits: Sequence[SeenCommit], good: int | None) -> End | None:
    last = commits[-1]
    if good is None and (commits[0].is_bad or commits[0].is_left_alone):
        return End.GOOD_IS_BAD
    if sum(commit.silent >= VAIN_MOST for commit in commits) >= SILENT_MOST:
        return End.SILENT
    if good == len(commits) - 1:
        return End.FLAKY
    if last.is_left_alone and not last.is_bad:
        return End.SILENT if last.silent else End.UNCONFIRMED
    return None


def _is_confirmed_bad(commits: Sequence[SeenCommit], good: int | None) -> bool:
    """Whether some commit after the good ones certainly fails."""
    after = 1 if good is None else good + 1
    return any(commit.is_bad and commit.bad >= BAD_RUNS for commit in commits[after:])


def _unconfirmed_ends(commits: Sequence[SeenCommit], good: int | None) -> list[tuple[SeenCommit, Purpose]]:
    """Return which ends still lack runs; later passes confirm a good end that passed once."""
    wanted = []
    if not _is_confirmed_bad(commits, good):
        wanted.append((commits[-1], Purpose.CONFIRM_BAD))
    if good is None:
        wanted.append((commits[0], Purpose.CONFIRM_GOOD))
    return wanted


def _passes(commits: Sequence[SeenCommit], good: int) -> int:
    """Return how many runs passed up to a good commit."""
    return sum(commit.good for commit in commits[: good + 1])


def _unconfirmed_pair(
    commits: Sequence[SeenCommit], good: int, bad: int, terms: SearchTerms
) -> list[tuple[SeenCommit, Purpose]]:
    """Return which of the found pair still lacks runs."""
    wanted = []
    if commits[bad].bad < bads_needed(_others(commits, bad), terms.flaky_rate):
        wanted.append((commits[bad], Purpose.CONFIRM_BAD))
    if _passes(commits, good) < terms.goods:
        wanted.append((commits[good], Purpose.CONFIRM_GOOD))
    return wanted


def _others(commits: Sequence[SeenCommit], bad: int) -> int:
    """Count the commits up to the next failure that can be the culprit if a bad one failed by chance."""
    return next((at - bad for at in range(bad + 1, len(commits)) if commits[at].is_bad), 0)


def _confirm(
    wanted: Sequence[tuple[SeenCommit, Purpose]], terms: SearchTerms, good: int | None, bad: int | None
) -> Decision:
    """Return as many steps as may run at once on what is not under way; a commit tried in vain ends the search."""
    for commit, _ in wanted:
        if commit.vain >= VAIN_MOST and not commit.asked:
            end = End.SILENT if commit.silent else End.UNCONFIRMED
            return Decision(end=end, good=good, bad=bad, unconfirmed=commit.sha)
    under_way = sum(commit.asked for commit, _ in wanted)
    steps = [NextStep(commit.sha, purpose) for commit, purpose in wanted if not commit.asked]
    return Decision(steps=tuple(steps[: max(0, terms.parallel - under_way)]), good=good, bad=bad)


def _testable(commits: Sequence[SeenCommit], gap: range) -> list[int]:
    return [at for at in gap if not commits[at].is_left_alone and not commits[at].pending]


def _untestable(commits: Sequence[SeenCommit], gap: range) -> list[int]:
    """Return the positions of commits that were tried in vain."""
    return [at for at in gap if commits[at].is_left_alone and not commits[at].good and not commits[at].bad]


def _split(places: Sequence[int], untestable: Sequence[int], parallel: int) -> list[int]:
    """Return the positions that cut a range into pieces of about equal length."""
    count = min(parallel, len(places))
    reach = len(places) // (4 * (count + 1))
    middles = [number * len(places) // (count + 1) for number in range(1, count + 1)]
    return sorted({_near(places, middle, untestable, reach) for middle in middles})


def _near(places: Sequence[int], middle: int, untestable: Sequence[int], reach: int) -> int:
    """Return a position near the middle.

    Commits that cannot be built come in rows: the distance to them doubles with each one tried nearby.
    """
    nearby = places[max(0, middle - reach) : middle + reach + 1]
    tried = untestable[bisect_left(untestable, nearby[0]) : bisect_left(untestable, nearby[-1])]
    if not tried:
        return places[middle]
    far = 2 ** min(len(tried) - 1, 12)

    def unlikeness(place: int) -> tuple[int, int]:
        after = bisect_left(tried, place)
        apart = min(abs(place - other) for other in tried[max(0, after - 1) : after + 1])
        return -min(apart, far), abs(place - places[middle])

    return min(nearby, key=unlikeness)
