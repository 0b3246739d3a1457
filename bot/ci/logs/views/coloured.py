"""Lines of a log as a page shows them: colours as classes of ours, groups as folds, markers of the runner as tones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.logs.parse.cleaning import BOM, SEQUENCE, kept_spans, time_of, timestamp_length, valid
from bot.core.escaping import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN = 2_000  # characters of a line
PIECES = 200  # of different colours in a line
MARKERS = {
    "##[error]": "bad",
    "##[warning]": "warn",
    "##[notice]": "wait",
    "##[command]": "command",
    "##[debug]": "idle",
    "##[group]": "group",
    "##[endgroup]": "endgroup",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line: pieces of (classes, text); the classes are ours, the text comes from outside."""

    number: int
    at: int | None  # epoch milliseconds
    marker: str  # a value of MARKERS, or nothing
    pieces: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Lines that belong together; `title` begins a group."""

    title: Line | None
    lines: tuple[Line, ...]


def coloured(lines: Sequence[bytes], *, first: int) -> list[Line]:
    """Return raw lines as a page shows them; `first` is the number of the first."""
    return [_line(number, raw) for number, raw in enumerate(lines, first)]


def folds(lines: Sequence[Line]) -> list[Fold]:
    """Return lines with those of one group together; the line that ends a group says nothing and goes."""
    found: list[Fold] = []
    title: Line | None = None
    inside: list[Line] = []
    for line in lines:
        if line.marker in {"group", "endgroup"}:
            found.append(Fold(title=title, lines=tuple(inside)))
            title, inside = (line if line.marker == "group" else None), []
        else:
            inside.append(line)
    found.append(Fold(title=title, lines=tuple(inside)))
    return [fold for fold in found if fold.title or fold.lines]


def _line(number: int, raw: bytes) -> Line:
    text = valid(raw.removeprefix(BOM) if number == 1 else raw).removesuffix(b"\r")
    body = text[timestamp_length(text) :]
    marker = next((mark for mark in MARKERS if body.startswith(mark.encode())), "")
    pieces = tuple(_pieces(body[len(marker) :]))
    return Line(number=number, at=time_of(text), marker=MARKERS.get(marker, ""), pieces=pieces)


def _pieces(body: bytes) -> Iterator[tuple[str, str]]:
    colour, bold, left, end = "", "", SHOWN, 0
    for count, (start, stop) in enumerate(kept_spans(body)):
        for code in _codes(body[end:start]):
            colour, bold = _after(code, colour, bold)
        end = stop
        shown = clean(body[start:stop].decode("utf-8", "replace"))[:left]
        left -= len(shown)
        if shown:
            yield " ".join(filter(None, (colour, bold))), shown
        if left <= 0 or count >= PIECES:
            yield "idle", "… cut"
            return


def _codes(sequence: bytes) -> list[int]:
    """Return what a colour sequence says; nothing for any other."""
    if not (sequence.startswith(b"\x1b[") and sequence.endswith(b"m") and SEQUENCE.fullmatch(sequence)):
        return []
    parts = sequence[2:-1].split(b";")
    return [int(part) if part.isdigit() and len(part) < 4 else 0 for part in parts]


def _after(code: int, colour: str, bold: str) -> tuple[str, str]:
    """Return the classes after a code: sixteen colours and bold, nothing else."""
    if code == 0:
        return "", ""
    if code in {1, 22}:
        return colour, "bold" if code == 1 else ""
    if 30 <= code <= 37 or 90 <= code <= 97:
        return f"ansi{code - 30 if code < 40 else code - 82}", bold
    return ("" if code == 39 else colour), bold
