"""What does a file of settings say? TOML; or `.env`: lines as systemd and containers read them into the environment."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "OOTBOT_"


def read(path: Path) -> dict[str, Any]:
    """Return the options a file sets, by their names in small letters; raises OSError and ValueError."""
    text = path.read_text()
    if path.suffix == ".env":
        return _environment(text)
    try:
        return {name.lower(): value for name, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from error


def _environment(text: str) -> dict[str, str]:
    """Read NAME=VALUE lines; names that are not ours are somebody else's."""
    found = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        name, sign, value = line.partition("=")
        if line.startswith("#") or not line:
            continue
        if not sign:
            raise ValueError(f"line {number} is not NAME=VALUE")
        if name.strip().startswith(PREFIX) and value.strip():
            found[name.strip().removeprefix(PREFIX).lower()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
