"""ootbot settings: every option with its default, as a file to copy from or as documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import feature_settings
from bot.core import presets, setting_types
from bot.core.settings import Settings, options

if TYPE_CHECKING:
    import dataclasses

UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
INTRODUCTION = """# Settings

Environment `OOTBOT_<NAME>`, a key of `ootbot.toml`, or a line of an `.env` file (`--config FILE`); environment
wins. Missing, misspelt or wrong ones are all reported at once, with exit code 2. Durations are `90s`, `30m`, `6h`,
`2d`. Plain http is accepted only to loopback. `ootbot settings` prints them as a file to copy from.

| name | default | meaning |
|---|---|---|
"""
KEY_FILES = """
`PRIVATE_KEY_PATH` and `RELAY_PRIVATE_KEY_PATH` name files to read `PRIVATE_KEY` and `RELAY_PRIVATE_KEY` from.
"""
PRESETS = """
## Presets

`PRESET` sets several options by one name; one that is set by its own name wins. `ootbot settings --preset NAME` prints
what a preset sets, `ootbot doctor` says which one is on.
"""


@click.command()
@click.option("--markdown", is_flag=True, help="As docs/settings.md.")
@click.option(
    "--preset", type=click.Choice(sorted(presets.read_presets())), help="Only what this preset sets."
)
def settings(*, markdown: bool, preset: str | None) -> None:
    """Print every option with its default, ready to be copied into ootbot.toml."""
    if preset is not None:
        click.echo("\n".join(preset_table(preset)) if markdown else preset_toml(preset), nl=markdown)
        return
    click.echo(as_markdown() if markdown else as_toml(), nl=False)


def preset_toml(name: str) -> str:
    """Return what a preset sets, each option with its sentence and its default."""
    fields = options(Settings)
    lines = [
        f"# PRESET={name} sets the options below; one that is set by its own name wins.",
        f'preset = "{name}"',
    ]
    for option, text in presets.read_presets()[name].items():
        field = fields[option]
        lines += ["", f"# {field.metadata['help']}", f"# default: {json.dumps(_default(field))}"]
        lines.append(f"# {option} = {json.dumps(text)}")
    return "\n".join(lines) + "\n"


def preset_table(name: str) -> list[str]:
    """Return the same as a table."""
    fields = options(Settings)
    return [
        f"| `PRESET={name}` sets | to | instead of |",
        "|---|---|---|",
        *(
            f"| `{option.upper()}` | `{text}` | {_default_in_words(fields[option])} |"
            for option, text in presets.read_presets()[name].items()
        ),
    ]


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
    return (
        INTRODUCTION
        + "\n".join(rows)
        + "\n"
        + KEY_FILES
        + PRESETS
        + "".join("\n" + "\n".join(preset_table(name)) + "\n" for name in presets.read_presets())
    )


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
    if show := field.metadata["show"]:
        return str(show(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, int) else str(value)
