"""The reports of one job, from files, folders and archives: merged into one result, and what could not be read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bot.evidence.collect.parse import archives
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.tests.parse import junit, run_report
from bot.evidence.tests.parse.cases import (
    Case,
    Cases,
    Group,
    Outcome,
    check_size,
    disambiguate,
    is_flaky,
    merge,
)
from bot.evidence.tests.parse.junit import NoReport
from bot.evidence.tests.parse.texts import SourcePlace, invoking_file
from bot.evidence.tests.parse.xml_documents import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ANT = "TESTS-TestSuites.xml"  # all reports of a job once more
TESTNG = "junitreports"  # folder of the same results in a second form
FILES_MOST = 10_000  # of a folder
FILE_MOST = archives.MOST_INFLATED
WANTED = (".xml", ".jsonl")
ARCHIVE = ".zip"
Pieces = Callable[[], Iterable[bytes]]  # the content of a file, as often as it is asked for
COUNTED = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.ERROR: "errors",
    Outcome.SKIPPED: "skipped",
    Outcome.XFAILED: "xfailed",
    Outcome.XPASSED: "xpassed",
    Outcome.TIMED_OUT: "failed",
}


class Unreadable(NamedTuple):
    """A file that was left out, or a note about one."""

    member: str
    reason: str


class Report(NamedTuple):
    """One report, read whole."""

    member: str
    digest: bytes  # of its file's name without folders, and its content
    cases: Cases
    head: run_report.ReportHead | None  # None: JUnit
    started_at: float | None = None  # see run_report.RunReport
    notes: Sequence[str] = ()  # what had to be done to read it, and what it says wrongly of itself


class Reader(Protocol):
    """What receives reports as they are read."""

    def add(self, member: str, pieces: Pieces) -> None:
        """Read one report."""

    def refuse(self, member: str, reason: str) -> None:
        """Record a report that was left out."""


class Merging:
    """The JUnit reports of a job, merged as they come."""

    def __init__(self) -> None:
        self.too_long = 0
        self._groups: dict[tuple[SourcePlace, str], Group] = {}  # by the report's folder, too
        self._again: list[tuple[SourcePlace, Group]] = []  # of reports that repeat others
        self._cases = 0
        self._merged: dict[SourcePlace, Group] | None = None

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

    def groups(self) -> dict[SourcePlace, Group]:
        """Return the cases by file and suite."""
        if self._merged is None:
            self._merged = self._merge()
        return self._merged

    def _merge(self) -> dict[SourcePlace, Group]:
        by_place: dict[SourcePlace, list[tuple[str, Group]]] = {}
        for (place, folder), group in self._groups.items():
            by_place.setdefault(place, []).append((folder, group))
        merged: dict[SourcePlace, list[Group]] = {}
        for place, reports in by_place.items():
            if len(reports) == 1:
                merged.setdefault(place, []).append(reports[0][1])
                continue
            for own_place, some in _by_folder(place, reports).items():
                merged.setdefault(own_place, []).extend(some)
        self._add_repeated(by_place, merged)
        return merge(merged)

    def _add_repeated(
        self, by_place: dict[SourcePlace, list[tuple[str, Group]]], merged: dict[SourcePlace, list[Group]]
    ) -> None:
        """Add cases of reports that repeat others; known cases gain no attempt."""
        for place, group in self._again:
            known = [known_group for _, known_group in by_place.get(place, ())]
            for known_group in known:
                known_group.unpack()
            names = {name for known_group in known for name in known_group.names if name in group.names}
            merged.setdefault(place, []).append(group.without(names) if names else group)


@dataclass(kw_only=True)
class Results:
    """All reports of a job, merged."""

    runs: Cases = field(default_factory=Cases)
    unreadable: list[Unreadable] = field(default_factory=list)
    no_reports: list[Unreadable] = field(default_factory=list)  # files of other kinds
    notes: list[Unreadable] = field(default_factory=list)
    read: int = 0  # reports
    _junit: Merging = field(default_factory=Merging)
    _known: set[bytes | str] = field(default_factory=set)
    _waiting: list[Report] = field(default_factory=list)  # run reports, until all are there
    _first: Report | None = None  # of the run reports

    def add(self, member: str, pieces: Pieces) -> None:
        """Read one report; an unreadable one changes only the list of files that were left out."""
        try:
            self.merge(parse_report(member, pieces))
        except NoReport as error:
            self.no_reports.append(Unreadable(member, str(error)))
        except (Broken, Refused) as error:
            self.refuse(member, str(error))

    def merge(self, report: Report) -> None:
        """Add a report, unless it is known; raises Refused over a limit."""
        identity = report.head.report_uuid if report.head else report.digest
        if identity not in self._known:
            if report.head:
                self._waiting.append(report)
                self._first = min(self._first or report, report, key=_began)
            else:
                self._junit.add(report.member, report.cases)
            self._known.add(identity)
        self.notes += [Unreadable(report.member, note) for note in report.notes]
        self.read += 1

    def refuse(self, member: str, reason: str) -> None:
        """Record a report that was left out."""
        self.unreadable.append(Unreadable(member, reason))

    @property
    def too_long(self) -> int:
        """The number of cases whose time no test can have taken; their time counts as unknown."""
        return self._junit.too_long + self.runs.too_long

    @property
    def head(self) -> run_report.ReportHead | None:
        """The first line of the run report that began first."""
        return self._first and self._first.head

    def _merge_waiting(self) -> None:
        """Merge the run reports in the order in which they began."""
        for report in sorted(self._waiting, key=_began):
            try:
                self.runs.merge(report.cases)
            except Refused as error:
                self.refuse(report.member, str(error))
        self._waiting.clear()

    def cases(self) -> Iterator[Case]:
        """Yield every case; run reports take precedence over JUnit for a file."""
        for place, group in self.groups():
            yield from group.cases(place)

    def groups(self) -> Iterator[tuple[SourcePlace, Group]]:
        """Yield the cases by file and suite."""
        self._merge_waiting()
        yield from self.runs.groups.items()
        files = {place.file for place in self.runs.groups}
        junit = self._junit.groups()
        yield from ((place, group) for place, group in junit.items() if place.file not in files)

    def counts(self) -> dict[str, int]:
        """Count cases by outcome; `flaky` ones also count by their outcome."""
        counts = {"tests": 0, **dict.fromkeys(COUNTED.values(), 0), "flaky": 0}
        for _, group in self.groups():
            counts["tests"] += len(group.times)
            counts["passed"] += len(group.times) - len(group.attempts)
            for attempts in group.attempts.values():
                counts[COUNTED[attempts[-1].outcome]] += 1
                counts["flaky"] += is_flaky(attempts)
        return counts


def parse_report(member: str, pieces: Pieces) -> Report:
    """Parse one report; raises Broken if it cannot be read, NoReport if it is none, Refused over a limit."""
    hashed = _Hashed(member, pieces)
    if member.casefold().endswith(".jsonl"):
        head, cases, started_at = run_report.parse_run_report(hashed.pieces())
        return Report(member, hashed.digest(), cases, head, started_at)
    cases, notes = junit.parse_junit(hashed.pieces, invoking_file(member))
    return Report(member, hashed.digest(), cases, None, notes=notes)


def read_reports(paths: Iterable[Path]) -> Results:
    """Read the files, folders and ZIP archives of one job."""
    results = Results()
    for path in paths:
        if path.is_dir():
            _read_folder(results, path)
        else:
            read_file(results, path, str(path))
    return results


def read_file(results: Reader, path: Path, name: str) -> None:
    """Read a report, or every report of an archive."""
    try:
        with path.open("rb") as file:
            is_archive = file.read(2) == b"PK"
        if is_archive or path.suffix.casefold() == ARCHIVE:
            read_archive(results, path, name if name.endswith("/") else "")
        else:
            results.add(name, lambda: _pieces(path))
    except OSError as error:
        results.refuse(name, error.strerror or str(error))
    except (Broken, Refused) as error:  # the archive as a whole
        results.refuse(name.removesuffix("/"), str(error))


def read_archive(results: Reader, path: Path, prefix: str = "") -> None:
    """Read every report of an archive; raises Refused or Broken if none can be read."""
    with archives.open_archive(path) as archive:
        for member in sorted(archives.readable_members(archive), key=lambda member: member.name):
            if not is_wanted(member.name):
                continue
            if member.name.casefold().endswith(ARCHIVE):
                results.refuse(prefix + member.name, "an archive in an archive is not opened")
            else:
                results.add(prefix + member.name, member.pieces)
        for entry in archive.entries:
            reason = archives.archive_refusal(entry)
            if reason and is_wanted(entry.name):
                results.refuse(prefix + entry.name, reason)


def is_wanted(name: str) -> bool:
    """Whether a member of an archive may be a report, by its name; macOS adds extra files beside each."""
    folders = name.split("/")
    if "__MACOSX" in folders or folders[-1].startswith("._"):
        return False
    return name.casefold().endswith((*WANTED, ARCHIVE))


def _by_folder(place: SourcePlace, reports: list[tuple[str, Group]]) -> dict[SourcePlace, list[Group]]:
    """Return the cases of a place from several folders' reports, with cases of one name kept apart."""
    groups = [group for _, group in reports]
    index = {id(group): at for at, group in enumerate(groups)}
    paths = [(tuple(folder.split("/")), "") for folder, _ in reports]
    return disambiguate(place, groups, lambda group, _: index[id(group)], paths.__getitem__)


def _began(report: Report) -> tuple[bool, float, str, bytes]:
    """Return the sort key of a run report; reports without a start come last."""
    return report.started_at is None, report.started_at or 0.0, report.member, report.digest


def _read_folder(results: Reader, folder: Path) -> None:
    files = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or not name.casefold().endswith((*WANTED, ARCHIVE)):
            continue
        files += 1
        if files > FILES_MOST:
            results.refuse(name, f"more than {FILES_MOST:,} files in {folder.name}: this and all after it")
            return
        read_file(results, path, name if not name.casefold().endswith(ARCHIVE) else f"{name}/")


def _pieces(path: Path) -> Iterator[bytes]:
    read_so_far = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            read_so_far += len(piece)
            if read_so_far > FILE_MOST:
                raise Refused(f"over {FILE_MOST // PIECE} MiB")
            yield piece


class _Hashed:
    """The content of a report, and the digest of its last reading."""

    def __init__(self, member: str, pieces: Pieces) -> None:
        self._name = member.rpartition("/")[2].encode(errors="replace") + b"\0"
        self._pieces = pieces
        self._hash = self._new_hash()

    def _new_hash(self) -> hashlib.blake2b:
        return hashlib.blake2b(self._name, digest_size=16)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content."""
        self._hash = self._new_hash()
        for piece in self._pieces():
            self._hash.update(piece)
            yield piece

    def digest(self) -> bytes:
        """Return the digest of the file's base name and content."""
        return self._hash.digest()
