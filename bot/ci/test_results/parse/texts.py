"""Times and texts as reports have them: what becomes a number, and how much of a text is kept."""

from __future__ import annotations

import math

LONGEST_TIME = 7 * 24 * 3600  # seconds: more is a wrong clock
MESSAGE_MOST = 1024  # bytes
STACK_MOST = 4096
OUTPUT_MOST = 2048
LINE_DIGITS = 9
WHOLE_LOG_MOST = 4096  # where the output is all there is
_ELLIPSIS = "\n…\n"


def milliseconds(text: str | None) -> int | None:
    """Return a time in seconds as milliseconds; None if it is missing, no number, negative or over a week."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = float(text.replace(",", ""))
        except ValueError:
            return None
    if not 0 <= seconds <= LONGEST_TIME or "_" in text:
        return None
    return round(seconds * 1000)


def line_number(text: str, *, from_zero: bool) -> int | None:
    """Return the number of a line, from 1; None if it is no number. pytest counts from 0."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LINE_DIGITS):
        return None
    return int(text) + from_zero or None


def is_too_long(text: str | None) -> bool:
    """Whether a time is a number that no test can have taken."""
    try:
        seconds = float((text or "").replace(",", ""))
    except ValueError:
        return False
    return not math.isnan(seconds) and seconds > LONGEST_TIME


def beginning(text: str, most: int) -> str:
    """Return the beginning of a text, of at most so many bytes of UTF-8."""
    if len(text) * 4 <= most:
        return text
    return text[:most].encode(errors="replace")[:most].decode(errors="ignore")


def ending(text: str, most: int) -> str:
    """Return the end of a text, of at most so many bytes of UTF-8."""
    if len(text) * 4 <= most:
        return text
    return text[-most:].encode(errors="replace")[-most:].decode(errors="ignore")


class KeptText:
    """The beginning and the end of a text that comes in pieces; the middle is forgotten."""

    __slots__ = ("_head", "_size", "_tail")

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._size = 0  # characters in all

    def add(self, piece: str) -> None:
        """Take the next piece."""
        self._size += len(piece)
        if (missing := STACK_MOST - len(self._head)) > 0:
            self._head += piece[:missing]
            piece = piece[missing:]
        if piece:
            self._tail = (self._tail + piece[-STACK_MOST:])[-STACK_MOST:]

    def both(self, most: int) -> str:
        """Return the text, or its beginning and end around an ellipsis."""
        whole = self._head + self._tail
        if self._size == len(whole) and len(whole.encode(errors="replace")) <= most:
            return whole.strip()
        half = (most - len(_ELLIPSIS.encode())) // 2
        return beginning(self._head, half) + _ELLIPSIS + ending(whole, half)

    def tail(self, most: int) -> str:
        """Return the end of the text."""
        return ending(self._head + self._tail, most).strip()

    def first_line(self) -> str:
        """Return the first line that is not empty."""
        return self._head.strip().partition("\n")[0].strip()
