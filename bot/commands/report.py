"""ootbot report: tell a bot about a job, from any CI. Runs the very script of the reporting action."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report(arguments: tuple[str, ...]) -> None:
    """Tell a bot that a job began or ended; `ootbot report --help` lists the options of actions/report."""
    command = [sys.executable, "-E", "-s", "-B", str(script()), *arguments]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - our own script


def script() -> Path:
    """Return the reporting action's script: the checkout's, else the one shipped in the wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "actions" / "report" / "report.py"
    return checkout if checkout.is_file() else package / "_report" / "report.py"
