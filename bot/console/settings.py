"""ootbot settings: every option with its default, as a file to copy from or as documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import feature_settings
from bot.core import setting_types
from bot.core.settings import Settings, options

if TYPE_CHECKING:
    import dataclasses

UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
INTRODUCTION = """# Settings

Environment `OOTBOT_<NAME>`, a key of `ootbot.toml`, or a line of an `.env` file (`--config FILE`); environment
wins. Missing or wrong ones are all reported at once, with exit code 2. Durations are `90s`, `30m`, `6h`, `2d`.
Plain http is accepted only to loopback. `ootbot settings` prints them as a file to copy from.

| name | default | meaning |
|---|---|---|
"""
KEY_FILES = """
`PRIVATE_KEY_PATH` and `RELAY_PRIVATE_KEY_PATH` name files to read `PRIVATE_KEY` and `RELAY_PRIVATE_KEY` from.
"""


@click.command()
@click.option("--markdown", is_flag=True, help="As the table of docs/settings.md.")
def settings(*, markdown: bool) -> None:
    """Print every option with its default, ready to be copied into ootbot.toml."""
    click.echo(as_markdown() if markdown else as_toml(), nl=False)


def as_toml() -> str:
    """Return config/default.toml: each option commented out, with its sentence."""
    lines = [
        "# Every option of ootbot with its default. Copy what you change into ootbot.toml, or set OOTBOT_<NAME>."
    ]
    for field in options(Settings, *feature_settings()).values():
        required = "  # required" if field.metadata["required"] else ""
        lines += [
            "",
            f"# {field.metadata['help']}",
            f"# {field.name} = {json.dumps(_default(field))}{required}",
        ]
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """Return docs/settings.md."""
    rows = [
        f"| `{field.name.upper()}` | {_default_in_words(field)} | {field.metadata['help']} |"
        for field in options(Settings, *feature_settings()).values()
    ]
    return INTRODUCTION + "\n".join(rows) + "\n" + KEY_FILES


def _default_in_words(field: dataclasses.Field[Any]) -> str:
    default = _default(field)
    return "required" if field.metadata["required"] else "unset" if default == "" else f"`{default}`"


def _default(field: dataclasses.Field[Any]) -> str | int:
    """Return a default as it would be written in TOML; nothing is the empty text."""
    value: Any = field.default
    if value is None:
        return ""
    if field.metadata["read"] is setting_types.duration:
        return next(f"{value // unit}{name}" for unit, name in UNITS if value % unit == 0)
    if field.name == "oidc_issuers":
        return "github-actions"
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, int) else str(value)
