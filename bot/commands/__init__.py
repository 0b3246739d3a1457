"""What do commands share? The settings and where they are, words for what is wrong with them, an event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from bot import logs
from bot.errors import Misconfigured, OotbotError
from bot.settings import load

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from bot.settings import Settings

T = TypeVar("T")

PATH, LET_IN = "check the path: the folder it lies in has to be there", "let this user write there"
NEXT = {  # what to do about a file the system refuses
    errno.ENOENT: PATH,
    errno.ENOTDIR: PATH,
    errno.EEXIST: "nothing is replaced: move it away, or choose another path",
    errno.EACCES: LET_IN,
    errno.EPERM: LET_IN,
    errno.EROFS: LET_IN,
    errno.ENOSPC: "make room on its disk",
}

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML, or lines as in ootbot.env; default: ootbot.toml if there.",
)


def load_settings(config: Path | None) -> Settings:
    """Read the settings and set up logging; exits with 2 and one line for everything that is wrong."""
    try:
        chosen, warnings = load(os.environ, config)
    except Misconfigured as error:
        refuse(error, "docs/settings.md lists every option; `ootbot init` writes those that are required")
    for warning in warnings:
        click.echo(f"ootbot: warning: {warning}", err=True)
    logs.configure(fmt=chosen.log_format, level=chosen.log_level)
    return chosen


def run(work: Coroutine[None, None, T]) -> T:
    """Return what `work` returns, run on uvloop where there is one; an error of ours becomes one line and exit code 1.

    What only other settings can help is exit code 2.
    """
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        with runner:
            return runner.run(work)
    except Misconfigured as error:
        refuse(error)
    except (OotbotError, OSError) as error:
        click.echo(f"ootbot: {_in_words(error)}", err=True)
        sys.exit(1)


def _in_words(error: Exception) -> str:
    """Return what went wrong; for a file also the next step, which the system does not name."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    return "; ".join(filter(None, (f"{error.filename}: {error.strerror}", NEXT.get(error.errno or 0))))


def refuse(error: Misconfigured, *more: str) -> NoReturn:
    """Say everything that is wrong, one line each, and exit with 2."""
    for problem in (*error.problems, *more):
        click.echo(f"ootbot: {problem}", err=True)
    sys.exit(2)
