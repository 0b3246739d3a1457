"""Small documents of an artifact, in the parser child: their JSON, and what was skipped and why.

A parser says with `Limits` how much of a file is read, and makes rows of each document: see `read_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from bot.core.json_fields import clean
from bot.evidence.collect.parse import archives
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.job_reports.parse.values import PROBLEMS_MOST, Parsed, Problem, SkippedValue, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from bot.evidence.collect.parse.archives import Member
    from bot.evidence.collect.parse.contract import ParserInput

R = TypeVar("R")
REASON_MOST, MEMBER_MOST = 200, 100  # bytes


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a file is read."""

    globs: tuple[str, ...]  # members of an archive, in lower case
    bytes: int  # of all documents
    rows: int
    called: str  # the rows, in words


class Document(NamedTuple):
    """One document: the member's name and its content."""

    member: str
    content: bytes


class DocumentValue(NamedTuple):
    """One JSON value, and where it stood."""

    member: str
    line: int
    value: Any


class Problems:
    """What is skipped while a file is read."""

    def __init__(self) -> None:
        self.first: list[Problem] = []
        self.count = 0

    def add(self, member: str, line: int, reason: str) -> None:
        """Note that something is skipped."""
        self.count += 1
        if len(self.first) < PROBLEMS_MOST:
            self.first.append(Problem(_printable(member, MEMBER_MOST), line, _printable(reason, REASON_MOST)))


def read_rows(
    given: ParserInput, limits: Limits, read: Callable[[Document, Problems], Iterable[R]]
) -> Parsed[R]:
    """Return the rows that `read` makes of each document, and what was skipped.

    Raises Refused over the limit of bytes, and Broken if there are only problems.
    """
    problems = Problems()
    rows: list[R] = []
    for document in read_documents(given, limits.globs, most=limits.bytes):
        for row in read(document, problems):
            if len(rows) < limits.rows:
                rows.append(row)
            else:
                problems.add(document.member, 0, f"over {limits.rows:,} {limits.called}")
    return finish_parsing(rows, problems)


def read_each(document: Document, problems: Problems, read: Callable[[Any], R]) -> Iterator[R]:
    """Yield what `read` makes of each JSON value of a document; a SkippedValue becomes a problem."""
    for value in read_values(document, problems):
        try:
            row = read(value.value)
        except SkippedValue as error:
            problems.add(value.member, value.line, str(error))
        else:
            yield row


def finish_parsing(rows: list[R], problems: Problems) -> Parsed[R]:
    """Return the rows with what was skipped; raises Broken with the same if there are only problems."""
    parsed = Parsed(rows=rows, problems=problems.first, problem_count=problems.count)
    if rows or not problems.count:
        return parsed
    first = problems.first[0]
    where = f"{first.member}, line {first.line}" if first.line else first.member
    raise Broken(f"{where}: {first.reason}", answer=parsed)


def read_documents(given: ParserInput, globs: Sequence[str], *, most: int) -> Iterator[Document]:
    """Yield the members that match, or the file itself if it is no archive; raises Refused over `most` bytes."""
    total = 0
    for name, pieces in _members(given, globs):
        content = bytearray()
        for piece in pieces:
            content += piece
            total += len(piece)
            if total > most:
                raise Refused(f"over {most // (1024 * 1024)} MiB of documents")
        yield Document(name, bytes(content))


def read_values(document: Document, problems: Problems) -> Iterator[DocumentValue]:
    """Yield the JSON values of a document: its own, those of its list, or those of each line."""
    member, content = document
    try:
        whole = _decode(content)
    except SkippedValue as error:
        lines = content.split(b"\n")
        if sum(bool(line.strip()) for line in lines) < 2:
            problems.add(member, 0, str(error))
            return
        yield from _values_of_lines(member, lines, problems)
        return
    if isinstance(whole, list):
        yield from (DocumentValue(member, number, value) for number, value in enumerate(whole, 1))
    else:
        yield DocumentValue(member, 1, whole)


def _members(given: ParserInput, globs: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    if not archives.is_archive(given.path):
        yield given.path.name, _pieces(given)
        return
    with archives.open_archive(given.path) as archive:
        for member in archives.readable_members(archive):
            if any(fnmatchcase(_base_name(member), glob) for glob in globs):
                yield member.name, member.pieces()


def _pieces(given: ParserInput) -> Iterator[bytes]:
    with given.path.open("rb") as file:
        while piece := file.read(archives.PIECE):
            yield piece


def _base_name(member: Member) -> str:
    return member.name.rpartition("/")[2].casefold()


def _values_of_lines(member: str, lines: Sequence[bytes], problems: Problems) -> Iterator[DocumentValue]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = _decode(line)
        except SkippedValue as error:
            problems.add(member, number, str(error))
            continue
        # a line may be a list: PyTorch's collector of benchmarks reads such files, too
        several = value if isinstance(value, list) and value else [value]
        yield from (DocumentValue(member, number, value) for value in several)


def _decode(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SkippedValue(f"no JSON: {error}") from None


def _printable(text: str, most: int) -> str:
    return cut(" ".join(clean(text).split()), most)
