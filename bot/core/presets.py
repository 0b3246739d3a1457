"""Presets: options that are set together, by one name; config/presets.toml holds them."""

from __future__ import annotations

import tomllib

from bot.core import package_files


def read_presets() -> dict[str, dict[str, str]]:
    """Return all presets: name -> option -> its text, as it would stand in the environment."""
    return tomllib.loads(package_files.config("presets.toml").read_text())


def parse_preset(text: str) -> str:
    """Read a preset's name."""
    names = read_presets()
    if text not in names:
        raise ValueError(f"there is no preset {text[:40]!r}; known are {', '.join(sorted(names))}")
    return text
