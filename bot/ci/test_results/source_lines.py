"""Where in the source a test failed, as its report says: in the failure's text, else in JUnit's `line`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MOST = 500  # characters
LINE_MOST = 2**31 - 1  # what GitHub and databases take
_FORMS = (
    re.compile(r'^[ \t]*File "([^"\r\n]{1,500})", line (\d{1,10})\b', re.MULTILINE),  # Python's tracebacks
    # pytest, GoogleTest and Go begin a line with it
    re.compile(r"^[ \t]*((?:[A-Za-z]:)?[\w./\\+-]{1,490}\.[A-Za-z]\w{0,9}):(\d{1,10})(?=[:\s]|$)", re.MULTILINE),
    re.compile(r"\bpanicked at (?:'[^\n]{0,200}', )?([^\s:']{1,500}):(\d{1,10}):\d"),  # Rust
)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class SourceLine(NamedTuple):
    """A line of a file, named as the report does: relative to some folder, or of the machine it ran on."""

    file: str
    line: int


def find(file: str, line: int | None, *texts: str) -> SourceLine | None:
    """Return where a case failed; None where its report does not say.

    `file` and `line` are the case's own. The last line of the first text that names the case's file is the most
    precise; a case without a file failed where its text says.
    """
    own = _source_line(file, str(line)) if file and line is not None else None
    for text in texts:
        named = [one for one in _named(text) if not file or is_same(one.file, file)]
        if named:
            return named[-1]
    return own


def is_same(one: str, other: str) -> bool:
    """Whether two paths can name the same file, seen from different folders."""
    one, other = f"/{_plain(one)}", f"/{_plain(other)}"
    return one.endswith(other) or other.endswith(one)


def _named(text: str) -> Iterator[SourceLine]:
    """Yield the places that a text names, form by form."""
    for form in _FORMS:
        for found in form.finditer(text):
            if place := _source_line(found[1], found[2]):
                yield place


def _source_line(file: str, line: str) -> SourceLine | None:
    """Return a place, None where the path leads out of its folder or is no path, or the number is no line's."""
    plain, number = _plain(file), int(line)
    if not 0 < number <= LINE_MOST or not 0 < len(plain) <= FILE_MOST:
        return None
    if _CONTROL.search(plain) or not {"..", ""}.isdisjoint(plain.removeprefix("/").split("/")):
        return None
    return SourceLine(plain, number)


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")
