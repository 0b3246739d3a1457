"""Small documents of an artifact, in the parser child: their JSON, and what of them was left out and why.

A parser makes rows of what `read_values` yields, and returns `finish(rows, problems)`: a file with only problems is
broken, one with some is parsed and says so.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from bot.ci.collect.parse import zip_members
from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.extras.parse.parsed import NAME, PROBLEMS_MOST, Parsed, Problem
from bot.core.json_fields import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.ci.collect.parse.contract import Given
    from bot.ci.collect.parse.zip_members import Member

R = TypeVar("R")
REASON_MOST, MEMBER_MOST, TEXT_MOST = 200, 100, 256
RAW_MOST = 16 * 1024  # bytes of what is kept of a document beside its known fields
NUMBER_MOST = 1e300  # sums of some of these are still finite
ELLIPSIS = "…"


class Document(NamedTuple):
    """One document: the member's name and its content."""

    member: str
    content: bytes


class Value(NamedTuple):
    """One JSON value, and where it stood."""

    member: str
    line: int
    value: Any


class LeftOut(Exception):
    """A row cannot be used; the message says why."""


class Problems:
    """What is left out of a file, while it is read."""

    def __init__(self) -> None:
        self.first: list[Problem] = []
        self.count = 0

    def add(self, member: str, line: int, reason: str) -> None:
        """Note that something is left out."""
        self.count += 1
        if len(self.first) < PROBLEMS_MOST:
            self.first.append(Problem(_printable(member, MEMBER_MOST), line, _printable(reason, REASON_MOST)))


def finish(rows: list[R], problems: Problems) -> Parsed[R]:
    """Return the rows with what was left out; raises Broken with the same where there is nothing but problems."""
    found = Parsed(rows=rows, problems=problems.first, problem_count=problems.count)
    if rows or not problems.count:
        return found
    first = problems.first[0]
    where = f"{first.member}, line {first.line}" if first.line else first.member
    raise Broken(f"{where}: {first.reason}", answer=found)


def read_documents(given: Given, globs: Sequence[str], *, most: int) -> Iterator[Document]:
    """Yield the members that match, or the file itself where it is no archive; raises Refused over `most` bytes."""
    total = 0
    for name, pieces in _members(given, globs):
        content = bytearray()
        for piece in pieces:
            content += piece
            total += len(piece)
            if total > most:
                raise Refused(f"over {most // (1024 * 1024)} MiB of documents")
        yield Document(name, bytes(content))


def _members(given: Given, globs: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    if not zip_members.is_archive(given.path):
        yield given.path.name, _pieces(given)
        return
    with zip_members.open_archive(given.path) as archive:
        for member in zip_members.readable_members(archive):
            if any(fnmatchcase(_base_name(member), glob) for glob in globs):
                yield member.name, member.pieces()


def _pieces(given: Given) -> Iterator[bytes]:
    with given.path.open("rb") as file:
        while piece := file.read(zip_members.PIECE):
            yield piece


def _base_name(member: Member) -> str:
    return member.name.rpartition("/")[2].casefold()


def read_values(document: Document, problems: Problems) -> Iterator[Value]:
    """Yield the JSON values of a document: its own, those of its list, or one of each line."""
    member, content = document
    try:
        whole = _decode(content)
    except LeftOut as error:
        lines = content.split(b"\n")
        if sum(bool(line.strip()) for line in lines) < 2:
            problems.add(member, 0, str(error))
            return
        yield from _values_of_lines(member, lines, problems)
        return
    if isinstance(whole, list):
        yield from (Value(member, number, one) for number, one in enumerate(whole, 1))
    else:
        yield Value(member, 1, whole)


def _values_of_lines(member: str, lines: Sequence[bytes], problems: Problems) -> Iterator[Value]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = _decode(line)
        except LeftOut as error:
            problems.add(member, number, str(error))
        else:
            yield Value(member, number, value)


def _decode(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LeftOut(f"no JSON: {error}") from None


def as_object(value: Any, called: str) -> dict[str, Any]:
    """Return a JSON object; raises LeftOut."""
    if not isinstance(value, dict):
        raise LeftOut(f"{called} is no object")
    return value


def as_number(value: Any, called: str) -> float:
    """Return a finite number; raises LeftOut."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LeftOut(f"{called} is no number")
    if not math.isfinite(value) or abs(value) > NUMBER_MOST:
        raise LeftOut(f"{called} is not finite")
    return value


def as_count(value: Any, called: str) -> int:
    """Return a whole number from 0; raises LeftOut."""
    number = as_number(value, called)
    if number < 0 or number != int(number) or number >= 2**53:
        raise LeftOut(f"{called} is no count")
    return int(number)


def as_name(value: Any, called: str) -> str:
    """Return a name of lower-case letters, digits, `_`, `.` and `-`; raises LeftOut."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise LeftOut(f"{called} is not of 1 to 80 characters a-z 0-9 _ . -")
    return value


def as_text(value: Any, called: str, *, most: int = TEXT_MOST) -> str:
    """Return a text, cut off by bytes; the empty text for none; raises LeftOut."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise LeftOut(f"{called} is no text")
    return cut(clean(value), most)


def cut(text: str, most: int) -> str:
    """Return a text of at most so many bytes; one that is cut off ends with an ellipsis."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return text
    return encoded[: most - len(ELLIPSIS.encode())].decode("utf-8", "ignore") + ELLIPSIS


def keep_raw(value: dict[str, Any], most: int = RAW_MOST) -> dict[str, Any] | None:
    """Return what may be kept of a document, None where it is too large or could not be stored."""
    encoded = msgspec.json.encode(value)
    if len(encoded) > most or b"\\u0000" in encoded:
        return None
    return value


def _printable(text: str, most: int) -> str:
    return cut(" ".join(clean(text).split()), most)
