"""What is a check run called? Words people know; two jobs never have one name, whatever they are called."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from bot.domain import inert

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_CHARACTERS = 255


def joined(*parts: str) -> str:
    """Return a name; where it does not show all of its parts, or not which is which, it ends in their digest.

    The last part may hold a slash, as jobs of called workflows do: it is only unclear where an earlier one does.
    """
    shown = tuple(inert.title(part, limit=MOST_CHARACTERS) for part in parts)
    name = " / ".join(shown)
    if shown == parts and len(name) <= MOST_CHARACTERS and not any(" / " in part for part in parts[:-1]):
        return name
    return _marked(name, f" ({hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]})")


def gate(prefix: str) -> str:
    """Return the name that branch protection requires; no backend's is the same, as no device is called so."""
    return joined(prefix, "gate")


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names, the second of a kind with a number: two runs of one dispatch may have jobs of one name."""
    found: dict[str, None] = {}
    for name in names:
        chosen, count = name, 1
        while chosen in found:
            count += 1
            chosen = _marked(name, f" ({count})")
        found[chosen] = None
    return list(found)


def _marked(name: str, mark: str) -> str:
    return inert.shorten(name, MOST_CHARACTERS - len(mark)) + mark
