"""The cases of a job: every attempt of each, in little memory, for almost all pass at once.

Cases of one file and suite are a group. What passed at the first attempt takes a name, a byte and two numbers there;
anything else has its attempts beside.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect.parse.contract import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.ci.test_results.parse.names import Place

MOST_CASES = 2_000_000  # of one job
MOST_PLACES = 100_000  # files and suites of one job
NO_TIME = -1


class Outcome(IntEnum):
    """How an attempt ended; the numbers are those of PyTorch's test hub."""

    PASSED = 1
    FAILED = 2
    ERROR = 3
    SKIPPED = 4
    XFAILED = 5
    XPASSED = 6
    TIMED_OUT = 8


PASSING = frozenset({Outcome.PASSED, Outcome.XPASSED})
FAILING = frozenset({Outcome.FAILED, Outcome.ERROR, Outcome.TIMED_OUT})


class Attempt(NamedTuple):
    """One execution of a case."""

    outcome: Outcome
    message: str = ""
    type: str = ""
    stack: str = ""
    output: str = ""
    line: int | None = None  # of the case in its file, from 1


PASS = Attempt(Outcome.PASSED)
UNEXPLAINED = Attempt(Outcome.FAILED)  # a failed attempt of which only the existence is known


class Declared(NamedTuple):
    """What a run report says of a test's source; empty where it says nothing."""

    name: str  # before a device or type was added
    language: str


class Case(NamedTuple):
    """A case with all its attempts, the final one last."""

    place: Place
    name: str
    attempts: Sequence[Attempt]
    time_ms: int | None  # of the final attempt

    @property
    def outcome(self) -> Outcome:
        """How the final attempt ended."""
        return self.attempts[-1].outcome

    @property
    def failed_attempts(self) -> int:
        """How many attempts failed, the final one included."""
        return sum(attempt.outcome in FAILING for attempt in self.attempts)

    @property
    def is_flaky(self) -> bool:
        """Whether some attempt passed and another one failed."""
        return is_flaky(self.attempts)

    @property
    def message(self) -> str:
        """The message of the last attempt that has one."""
        return next((attempt.message for attempt in reversed(self.attempts) if attempt.message), "")


def is_flaky(attempts: Sequence[Attempt]) -> bool:
    """Whether some attempt passed and another one failed."""
    outcomes = {attempt.outcome for attempt in attempts}
    return bool(outcomes & PASSING and outcomes & FAILING)


class Group:
    """The cases of one file and suite."""

    __slots__ = ("_packed", "attempts", "declared", "names", "properties", "suites", "times")

    def __init__(self) -> None:
        self._packed: str | None = None  # the names, once nothing more is expected
        self.names: dict[str, int] = {}  # to its position
        self.times = array("i")
        self.suites = array("I")  # the suite element of the newest attempt
        self.attempts: dict[int, list[Attempt]] = {}  # of all but those that just passed
        self.declared: dict[str, Declared] = {}
        self.properties: dict[str, dict[str, str]] = {}  # of cases that failed, as a run report has them

    def add_passed(self, name: str, time: int | None, suite: int) -> bool:
        """Add a case that passed at its first attempt; returns whether it is new, otherwise nothing changes."""
        times = self.times
        new = len(times)
        if self.names.setdefault(name, new) != new:
            return False
        times.append(NO_TIME if time is None else time)
        self.suites.append(suite)
        return True

    def add(self, name: str, attempts: Sequence[Attempt], time: int | None, suite: int) -> int:
        """Add attempts of a case after those it has; returns its position."""
        times, suites = self.times, self.suites
        new = len(times)
        known = self.names.setdefault(name, new)
        if known == new:
            times.append(NO_TIME if time is None else time)
            suites.append(suite)
            if attempts is not JUST_PASSED:
                self.attempts[known] = list(attempts)
            return known
        self.attempts.setdefault(known, [PASS]).extend(attempts)
        times[known] = NO_TIME if time is None else time
        suites[known] = suite
        return known

    def pack(self) -> None:
        """Keep the names in a third of the memory, until they are looked at again."""
        packed = "\0".join(self.names)
        if packed.count("\0") == len(self.names) - 1:
            self._packed, self.names = packed, {}

    def unpack(self) -> None:
        """Make the names known again, for further attempts."""
        if self._packed is not None:
            self.names = {name: position for position, name in enumerate(self._packed.split("\0"))}
            self._packed = None

    def repeated_in(self, name: str, suite: int) -> bool:
        """Whether the newest attempt of a case stands in this suite element."""
        position = self.names.get(name)
        return position is not None and self.suites[position] == suite

    def newest_failed(self, name: str) -> None:
        """Hold the newest attempt of a case for failed: it was repeated."""
        attempts = self.attempts.setdefault(self.names[name], [PASS])
        if attempts[-1].outcome not in FAILING:
            attempts[-1] = UNEXPLAINED

    def in_order(self) -> list[str]:
        """Return the names of the cases in the order they came."""
        return list(self.names) if self._packed is None else self._packed.split("\0")

    def cases(self, place: Place) -> Iterator[Case]:
        """Yield the cases in the order they came."""
        names = self.in_order()
        for position, (name, time) in enumerate(zip(names, self.times, strict=True)):
            attempts = self.attempts.get(position, JUST_PASSED)
            yield Case(place, name, attempts, None if time == NO_TIME else time)


JUST_PASSED: Sequence[Attempt] = (PASS,)


@dataclass(kw_only=True)
class Cases:
    """Groups of cases by their place: of one report, or of a job."""

    groups: dict[Place, Group] = field(default_factory=dict)
    too_long: int = 0  # cases whose time no test can have taken

    def group(self, place: Place) -> Group:
        """Return the group of a place."""
        found = self.groups.get(place)
        if found is None:
            if len(self.groups) >= MOST_PLACES:
                raise Refused(f"over {MOST_PLACES:,} suites")
            found = self.groups[place] = Group()
        return found

    def merge(self, later: Cases) -> None:
        """Add the cases of another report: further attempts of those that are known."""
        if len(self) + len(later) > MOST_CASES:
            raise Refused(f"over {MOST_CASES:,} cases")
        if len(self.groups) + len(later.groups) > MOST_PLACES:
            raise Refused(f"over {MOST_PLACES:,} suites")
        self.too_long += later.too_long
        for place, group in later.groups.items():
            known = self.groups.setdefault(place, group)
            if known is not group:
                known.unpack()
                for case in group.cases(place):
                    known.add(case.name, case.attempts, case.time_ms, 0)
                known.declared |= group.declared
                known.properties |= group.properties
            known.pack()

    def __len__(self) -> int:
        return sum(len(group.times) for group in self.groups.values())

    def __iter__(self) -> Iterator[Case]:
        for place, group in self.groups.items():
            yield from group.cases(place)
