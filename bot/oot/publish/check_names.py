"""Names of check runs: readable, and different for any two jobs."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_CHARACTERS = 255


def joined(*parts: str) -> str:
    """Return a name of these parts, with their hash at the end if a part was changed or the name is ambiguous.

    The last part may contain a slash, as jobs of called workflows do: only in earlier parts is it ambiguous.
    """
    shown = tuple(escaping.title(part, limit=MOST_CHARACTERS) for part in parts)
    name = " / ".join(shown)
    if shown == parts and len(name) <= MOST_CHARACTERS and not any(" / " in part for part in parts[:-1]):
        return name
    return _marked(name, f" ({hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]})")


def gate(prefix: str) -> str:
    """Return the name that branch protection requires; no device may be called "gate"."""
    return joined(prefix, "gate")


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names, repeated ones numbered: two runs of one dispatch may have jobs of the same name."""
    found: dict[str, None] = {}
    for name in names:
        chosen, count = name, 1
        while chosen in found:
            count += 1
            chosen = _marked(name, f" ({count})")
        found[chosen] = None
    return list(found)


def _marked(name: str, mark: str) -> str:
    return escaping.shorten(name, MOST_CHARACTERS - len(mark)) + mark
