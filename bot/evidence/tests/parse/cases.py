"""The cases of a job: every attempt of each, in little memory, and which of the same name are different tests."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from bot.evidence.collect.parse.contract import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from bot.evidence.tests.parse.texts import SourcePlace

MOST_CASES = 2_000_000  # of one job
MOST_PLACES = 100_000  # files and suites of one job
NO_TIME = -1
TIME_MOST = 2**31 - 1
Path = tuple[str, ...]


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
# where several cases are held for one: a failure never disappears
SEVERITY = {
    Outcome.SKIPPED: 0, Outcome.XFAILED: 1, Outcome.PASSED: 2, Outcome.XPASSED: 3, Outcome.ERROR: 4,
    Outcome.TIMED_OUT: 5, Outcome.FAILED: 5,
}  # fmt: skip


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


JUST_PASSED: Sequence[Attempt] = (PASS,)


class Element(NamedTuple):
    """A suite element of a report."""

    name: str
    hostname: str  # Playwright writes the project there
    outer: int  # number of the element around it; 0: none


class Case(NamedTuple):
    """A case with all its attempts, the final one last."""

    place: SourcePlace
    name: str
    attempts: Sequence[Attempt]
    time_ms: int | None  # of the final attempt; of all, where several cases are held for one
    repeats: int = 1  # cases of this identity

    @property
    def outcome(self) -> Outcome:
        """The outcome of the final attempt."""
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


def severity(attempts: Sequence[Attempt]) -> tuple[int, bool]:
    """Return how badly a case ended: of several cases with one identity, the worst counts."""
    return SEVERITY[attempts[-1].outcome], any(attempt.outcome in FAILING for attempt in attempts)


class Group:
    """The cases of one file and suite."""

    __slots__ = (
        "_packed",
        "attempts",
        "declared",
        "lines",
        "names",
        "properties",
        "repeats",
        "suites",
        "times",
    )

    def __init__(self) -> None:
        self._packed: str | None = None  # the names, once nothing more is expected
        self.names: dict[str, int] = {}  # to its position
        self.times = array("i")
        self.suites = array("I")  # the suite element of each case
        self.lines = array("i")  # of each case in its file; 0: not known
        self.attempts: dict[int, list[Attempt]] = {}  # of all but those that just passed
        self.repeats: dict[int, int] = {}  # how many cases are held for one, by position
        self.declared: dict[str, Declared] = {}
        self.properties: dict[str, dict[str, str]] = {}  # of cases that failed, as a run report has them

    def add_passed(self, name: str, time: int | None, suite: int, line: int) -> bool:
        """Add a case that passed at its first attempt; return False and change nothing if it is known."""
        times = self.times
        new = len(times)
        if self.names.setdefault(name, new) != new:
            return False
        times.append(NO_TIME if time is None else time)
        self.suites.append(suite)
        self.lines.append(line)
        return True

    def add(self, name: str, attempts: Sequence[Attempt], time: int | None, suite: int, line: int = 0) -> int:
        """Add further attempts of a case; return its position."""
        if self.add_passed(name, time, suite, line):
            position = len(self.times) - 1
            if attempts is not JUST_PASSED:
                self.attempts[position] = list(attempts)
            return position
        known = self.names[name]
        self.attempts.setdefault(known, [PASS]).extend(attempts)
        self.times[known] = NO_TIME if time is None else time
        return known

    def add_repetition(self, position: int, attempts: Sequence[Attempt], time: int | None) -> None:
        """Treat another case of the same identity as this one; the worse of the two counts."""
        self.repeats[position] = self.repeats.get(position, 1) + 1
        if time is not None:
            known = max(self.times[position], 0)
            self.times[position] = min(known + time, TIME_MOST)
        self.worsen(position, attempts)

    def worsen(self, position: int, attempts: Sequence[Attempt]) -> None:
        """Take over another case's attempts if they are worse."""
        if severity(attempts) <= severity(self.attempts.get(position, JUST_PASSED)):
            return
        if attempts is JUST_PASSED:
            self.attempts.pop(position, None)
        else:
            self.attempts[position] = list(attempts)

    def copy_case(self, other: Group, position: int, name: str) -> None:
        """Copy a case from another group with all that is known of it; a case of the same name is the same."""
        attempts, time = other.attempts.get(position, JUST_PASSED), other.times[position]
        if name in self.names:
            self.worsen(self.names[name], attempts)
            return
        known = None if time == NO_TIME else time
        new = self.add(name, attempts, known, other.suites[position], other.lines[position])
        if position in other.repeats:
            self.repeats[new] = other.repeats[position]

    def without(self, names: Collection[str]) -> Group:
        """Return a group without the cases of these names."""
        self.unpack()
        kept = Group()
        for name, position in self.names.items():
            if name not in names:
                kept.copy_case(self, position, name)
        kept.declared, kept.properties = self.declared, self.properties
        return kept

    def pack(self) -> None:
        """Pack the names into a third of the memory, until they are needed again."""
        packed = "\0".join(self.names)
        if packed.count("\0") == len(self.names) - 1:
            self._packed, self.names = packed, {}

    def unpack(self) -> None:
        """Unpack the names, for further attempts."""
        if self._packed is not None:
            self.names = {name: position for position, name in enumerate(self._packed.split("\0"))}
            self._packed = None

    def newest_failed(self, name: str) -> None:
        """Mark the newest attempt of a case as failed: it was repeated."""
        attempts = self.attempts.setdefault(self.names[name], [PASS])
        if attempts[-1].outcome not in FAILING:
            attempts[-1] = UNEXPLAINED

    def in_order(self) -> list[str]:
        """Return the names of the cases in the order they came."""
        return list(self.names) if self._packed is None else self._packed.split("\0")

    def cases(self, place: SourcePlace) -> Iterator[Case]:
        """Yield the cases in the order they came."""
        names = self.in_order()
        for position, (name, time) in enumerate(zip(names, self.times, strict=True)):
            attempts = self.attempts.get(position, JUST_PASSED)
            known = None if time == NO_TIME else time
            yield Case(place, name, attempts, known, self.repeats.get(position, 1))


def check_size(cases: int, places: int) -> None:
    """Raise Refused if a job has too many cases or suites."""
    if cases > MOST_CASES:
        raise Refused(f"over {MOST_CASES:,} cases")
    if places > MOST_PLACES:
        raise Refused(f"over {MOST_PLACES:,} suites")


@dataclass(kw_only=True)
class Cases:
    """Groups of cases by place, of one report or of a job."""

    groups: dict[SourcePlace, Group] = field(default_factory=dict)
    too_long: int = 0  # cases whose time no test can have taken

    def group(self, place: SourcePlace) -> Group:
        """Return the group of a place."""
        group = self.groups.get(place)
        if group is None:
            check_size(0, len(self.groups) + 1)
            group = self.groups[place] = Group()
        return group

    def merge(self, later: Cases) -> None:
        """Add the cases of a later run report, as further attempts of known cases."""
        check_size(len(self) + len(later), len(self.groups) + len(later.groups))
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


def path_of(number: int, elements: Sequence[Element]) -> tuple[Path, str]:
    """Return the path and the host name of a suite element."""
    return _path(number, elements), elements[number].hostname


def qualifiers(paths: Sequence[tuple[Path, str]]) -> list[str]:
    """Return what distinguishes each path from the others: the part that differs, else the host, else a number.

    >>> qualifiers([(("all", "linux"), ""), (("all", "windows"), "")])
    ['linux', 'windows']
    >>> qualifiers([(("a",), "chromium"), (("a",), "firefox"), (("a",), "firefox")])
    ['chromium', 'firefox', 'firefox #2']
    """
    parts = [path for path, _ in paths]
    first = _common(parts)
    last = _common([part[first:][::-1] for part in parts])
    words = [" > ".join(name for name in part[first : len(part) - last] if name) for part in parts]
    if len(set(words)) < len(words):
        words = [" ".join(filter(None, (word, host))) for word, (_, host) in zip(words, paths, strict=True)]
    seen: Counter[str] = Counter()
    numbered = []
    for word in words:
        seen[word] += 1
        numbered.append(word if seen[word] == 1 else f"{word} #{seen[word]}".strip())
    return numbered


def qualified(place: SourcePlace, qualifier: str) -> SourcePlace:
    """Return the place of a test, qualified to distinguish it from others of its name."""
    if not qualifier:
        return place
    return place._replace(suite=f"{place.suite} [{qualifier}]" if place.suite else qualifier)


def disambiguate(
    place: SourcePlace,
    groups: Sequence[Group],
    source: Callable[[Group, int], int],
    path: Callable[[int], tuple[Path, str]],
) -> dict[SourcePlace, list[Group]]:
    """Give cases of the same place and name, but different sources, places of their own.

    `source` returns a number for where a case of a group stands, `path` what that number stands for.
    """
    where: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        group.unpack()
        for name in group.names:
            where[name].append(group)
    same = {name: some for name, some in where.items() if len(some) > 1}
    by_place = {place: [group.without(same) if same else group for group in groups]}
    apart: dict[SourcePlace, Group] = {}
    known: dict[tuple[int, ...], list[str]] = {}
    for name, some in same.items():
        sources = tuple(source(group, group.names[name]) for group in some)
        words = known.get(sources)
        if words is None:
            words = known[sources] = qualifiers([path(number) for number in sources])
        for word, group in zip(words, some, strict=True):
            target = apart.setdefault(qualified(place, word), Group())
            target.copy_case(group, group.names[name], name)
    for own_place, group in apart.items():
        by_place.setdefault(own_place, []).append(group)
    return by_place


def merge(groups_by_place: Mapping[SourcePlace, Sequence[Group]]) -> dict[SourcePlace, Group]:
    """Merge groups into one for each place."""
    whole: dict[SourcePlace, Group] = {}
    for place, groups in groups_by_place.items():
        for group in groups:
            if not group.times:
                continue
            known = whole.setdefault(place, group)
            if known is not group:
                known.unpack()
                group.unpack()
                for name, position in group.names.items():
                    known.copy_case(group, position, name)
                known.declared |= group.declared
                known.properties |= group.properties
    return whole


def _path(number: int, elements: Sequence[Element]) -> Path:
    names: list[str] = []
    while number:
        names.append(elements[number].name)
        number = elements[number].outer
    return tuple(reversed(names))


def _common(parts: Sequence[Path]) -> int:
    """Count the names that all paths begin with."""
    least = min(map(len, parts))
    return next((at for at in range(least) if len({part[at] for part in parts}) > 1), least)
