"""Times and texts as reports have them: what becomes a number, and how much of a text is kept."""

from __future__ import annotations

import hashlib
import math

from bot.core.masking import mask

NAME_MOST = 512  # characters
LONGEST_TIME = 7 * 24 * 3600  # seconds: more is a wrong clock
MESSAGE_MOST = 1024  # bytes
STACK_MOST = 4096
OUTPUT_MOST = 2048
LINE_DIGITS = 9
WHOLE_LOG_MOST = 4096  # where the output is all there is
_ELLIPSIS = "\n…\n"


def milliseconds(text: str | None) -> int | None:
    """Return a time in seconds as milliseconds; None if it is missing, no number, negative or over a week."""
    seconds = _seconds(text)
    if seconds is None or not 0 <= seconds <= LONGEST_TIME:
        return None
    return round(seconds * 1000)


def _seconds(text: str | None) -> float | None:
    """Return a number, with a decimal point or comma, and marks between thousands."""
    if not text or "_" in text:
        return None
    if "," in text:
        whole, _, fraction = text.rpartition(".")
        if whole and "," in whole:  # 1,234.5
            text = f"{whole.replace(',', '')}.{fraction}"
        elif text.count(",") == 1:  # 0,014 and 1.234,5
            text = text.replace(".", "").replace(",", ".")
        else:  # 1,234,567
            text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def line_number(text: str, *, from_zero: bool) -> int | None:
    """Return the number of a line, from 1; None if it is no number. pytest counts from 0."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LINE_DIGITS):
        return None
    return int(text) + from_zero or None


def is_too_long(text: str | None) -> bool:
    """Whether a time is a number that no test can have taken."""
    seconds = _seconds(text)
    return seconds is not None and not math.isnan(seconds) and seconds > LONGEST_TIME


def short_name(text: str) -> str:
    """Return the name of a test, suite or file: of a very long one the beginning, and a digest of all of it."""
    if len(text) <= NAME_MOST:
        return text
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{text[:NAME_MOST]}… {digest}"


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
            return mask(whole).strip()
        half = (most - len(_ELLIPSIS.encode())) // 2
        return beginning(mask(self._head), half) + _ELLIPSIS + ending(mask(whole), half)

    def tail(self, most: int) -> str:
        """Return the end of the text."""
        return ending(mask(self._head + self._tail), most).strip()

    def beginning(self) -> str:
        """Return the beginning of the text."""
        return mask(self._head)
