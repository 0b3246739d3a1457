"""Values of a document, checked: each function returns one that can be stored, or says why it cannot."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from bot.ci.extras.parse.parsed import NAME
from bot.core.json_fields import clean

TEXT_MOST = 256
RAW_MOST = 16 * 1024  # bytes of what is kept of a document beside its known fields
NUMBER_MOST = 1e300  # sums of some of these are still finite
ELLIPSIS = "…"


class LeftOut(Exception):
    """A row cannot be used; the message says why."""


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
