"""The JUnit reports of a job, merged.

Tests of one identity in several files are told apart by folder; within a folder they are one, and the worst counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.test_results.parse.cases import Cases, Group, check_size
from bot.ci.test_results.parse.same_names import put_together, tell_apart

if TYPE_CHECKING:
    from bot.ci.test_results.parse.names import Place

ANT = "TESTS-TestSuites.xml"  # all reports of a job once more
TESTNG = "junitreports"  # folder of the same results in a second form


class Merging:
    """JUnit reports of a job as they come."""

    def __init__(self) -> None:
        self.too_long = 0
        self._groups: dict[tuple[Place, str], Group] = {}  # by the report's folder, too
        self._again: list[tuple[Place, Group]] = []  # of reports that repeat others
        self._cases = 0
        self._merged: dict[Place, Group] | None = None

    def add(self, member: str, cases: Cases) -> None:
        """Add a report; raises Refused over a limit."""
        count = len(cases)
        check_size(self._cases + count, len(self._groups) + len(cases.groups))
        folder, _, name = member.rpartition("/")
        self._cases += count
        self.too_long += cases.too_long
        self._merged = None
        if name == ANT or folder.rpartition("/")[2] == TESTNG:
            self._again += cases.groups.items()
            return
        for place, group in cases.groups.items():
            known = self._groups.setdefault((place, folder), group)
            if known is not group:
                known.unpack()
                for name_, position in group.names.items():
                    known.copy_case(group, position, name_)
            known.pack()

    def groups(self) -> dict[Place, Group]:
        """Return the cases by file and suite."""
        if self._merged is None:
            self._merged = self._merge()
        return self._merged

    def _merge(self) -> dict[Place, Group]:
        by_place: dict[Place, list[tuple[str, Group]]] = {}
        for (place, folder), group in self._groups.items():
            by_place.setdefault(place, []).append((folder, group))
        found: dict[Place, list[Group]] = {}
        for place, reports in by_place.items():
            if len(reports) == 1:
                found.setdefault(place, []).append(reports[0][1])
                continue
            for one, some in _by_folder(place, reports).items():
                found.setdefault(one, []).extend(some)
        self._add_repeated(by_place, found)
        return put_together(found)

    def _add_repeated(
        self, by_place: dict[Place, list[tuple[str, Group]]], found: dict[Place, list[Group]]
    ) -> None:
        """Add cases of reports that repeat others: those that are known add no attempt."""
        for place, group in self._again:
            known = [one for _, one in by_place.get(place, ())]
            for one in known:
                one.unpack()
            names = {name for one in known for name in one.names if name in group.names}
            found.setdefault(place, []).append(group.without(names) if names else group)


def _by_folder(place: Place, reports: list[tuple[str, Group]]) -> dict[Place, list[Group]]:
    """Return the cases that reports of several folders have of a place, those of one name apart."""
    groups = [group for _, group in reports]
    index = {id(group): at for at, group in enumerate(groups)}
    paths = [(tuple(folder.split("/")), "") for folder, _ in reports]
    return tell_apart(place, groups, lambda group, _: index[id(group)], paths.__getitem__)
