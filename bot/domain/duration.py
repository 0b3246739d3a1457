"""How many seconds is `90s`, `30m`, `6h` or `2d`? One way to write a time span."""

from __future__ import annotations

import re

PATTERN = "[1-9][0-9]{0,8}[smhd]"
LONGEST = 3650 * 86_400  # ten years: anything longer is a slip, and milliseconds still fit 64 bits

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def parse_duration(text: str) -> int:
    """Return the seconds that `text` stands for; ValueError says how to write a duration.

    One whole number above zero and one unit, nothing between or around them. Zero is refused
    because it would mean "at once" to one reader and "never" to the next.
    """
    if re.fullmatch(PATTERN, text) is None:
        shown = text[:40].encode("unicode_escape").decode()
        raise ValueError(
            f"`{shown}` is not a duration: write a whole number above zero and its unit, "
            "such as `90s`, `30m`, `6h` or `2d`"
        )
    seconds = int(text[:-1]) * _UNITS[text[-1]]
    if seconds > LONGEST:
        raise ValueError(f"`{text}` is longer than `3650d`: write a shorter duration")
    return seconds
