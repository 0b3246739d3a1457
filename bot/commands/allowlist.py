"""ootbot allowlist: look at allowlist files."""

from __future__ import annotations

import sys
from typing import IO

import click

from bot.domain import allowlist as allowlist_file


@click.group()
def allowlist() -> None:
    """Look at allowlist files."""


@allowlist.command()
@click.argument("file", type=click.File("rb"))
def check(file: IO[bytes]) -> None:
    """Say what is wrong with an allowlist FILE, all of it at once; exit 1 when anything is.

    \b
      ootbot allowlist check config/allowlist.example.yml
    """  # noqa: D301 - click's mark for lines to be kept as they are
    try:
        found = allowlist_file.parse(file.read())
    except allowlist_file.AllowlistError as error:
        click.echo(allowlist_file.render_errors(error), err=True)
        sys.exit(1)
    levels = ", ".join(f"{len(found.at(level))} at L{level}" for level in range(1, 5))
    click.echo(f"ok: {len(found.entries)} backends, {levels}")
