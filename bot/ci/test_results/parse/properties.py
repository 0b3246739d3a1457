"""What is kept of a run report's flags and properties: short texts by name, few of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from bot.ci.test_results.parse.texts import beginning
from bot.core.masking import mask

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_OF_REPORT = 40  # flags, and as many properties
MOST_OF_CASE = 20
NAME_MOST = 100  # bytes
VALUE_MOST = 200
HIDDEN = "(not kept)"
# flags are environment variables: a value under such a name is likely to be a credential
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY", re.IGNORECASE)


def kept(given: Mapping[str, Any] | None, most: int) -> dict[str, str]:
    """Return at most so many entries by name, as short texts; what is no text, number or truth value is JSON."""
    names = sorted(name for name in given or {} if name.strip())[:most]
    return {_short(name, NAME_MOST): _value(name, (given or {})[name]) for name in names}


def _value(name: str, value: Any) -> str:
    if _SECRET.search(name):
        return HIDDEN
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _short(text, VALUE_MOST)


def _short(text: str, most: int) -> str:
    return beginning(mask(text).replace("\0", "\N{REPLACEMENT CHARACTER}"), most)
