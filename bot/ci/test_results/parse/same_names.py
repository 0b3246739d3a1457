"""Cases of the same file, suite and name that are different tests: told apart by where in the reports they stand."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results.parse.cases import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.ci.test_results.parse.names import Place


class Element(NamedTuple):
    """A suite element of a report."""

    name: str
    hostname: str  # Playwright writes the project there
    outer: int  # number of the element around it; 0: none


Path = tuple[str, ...]


def path_of(number: int, elements: Sequence[Element]) -> tuple[Path, str]:
    """Return the path and the host name of a suite element."""
    return _path(number, elements), elements[number].hostname


def _path(number: int, elements: Sequence[Element]) -> Path:
    found: list[str] = []
    while number:
        found.append(elements[number].name)
        number = elements[number].outer
    return tuple(reversed(found))


def qualifiers(paths: Sequence[tuple[Path, str]]) -> list[str]:
    """Return what tells each of some paths from the others: what differs, else the host, else a number.

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
    found = []
    for word in words:
        seen[word] += 1
        found.append(word if seen[word] == 1 else f"{word} #{seen[word]}".strip())
    return found


def _common(parts: Sequence[Path]) -> int:
    """Return how many names all of these paths begin with."""
    least = min(map(len, parts))
    return next((at for at in range(least) if len({part[at] for part in parts}) > 1), least)


def qualified(place: Place, qualifier: str) -> Place:
    """Return the place of a test that is told apart from others of its name."""
    if not qualifier:
        return place
    return place._replace(suite=f"{place.suite} [{qualifier}]" if place.suite else qualifier)


def tell_apart(
    place: Place,
    groups: Sequence[Group],
    source: Callable[[Group, int], int],
    path: Callable[[int], tuple[Path, str]],
) -> dict[Place, list[Group]]:
    """Return the cases of groups that have the same place, those of one name in places of their own.

    `source` returns a number for where a case of a group stands, `path` what that number stands for.
    """
    where: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        group.unpack()
        for name in group.names:
            where[name].append(group)
    same = {name: some for name, some in where.items() if len(some) > 1}
    found = {place: [group.without(same) if same else group for group in groups]}
    apart: dict[Place, Group] = {}
    known: dict[tuple[int, ...], list[str]] = {}
    for name, some in same.items():
        sources = tuple(source(group, group.names[name]) for group in some)
        words = known.get(sources)
        if words is None:
            words = known[sources] = qualifiers([path(one) for one in sources])
        for word, group in zip(words, some, strict=True):
            target = apart.setdefault(qualified(place, word), Group())
            target.copy_case(group, group.names[name], name)
    for one, group in apart.items():
        found.setdefault(one, []).append(group)
    return found


def put_together(found: Mapping[Place, Sequence[Group]]) -> dict[Place, Group]:
    """Return one group for each place."""
    whole: dict[Place, Group] = {}
    for place, groups in found.items():
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
