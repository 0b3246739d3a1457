"""ootbot report: tell a bot about a job, from any CI. Runs the very script of the reporting action."""

from __future__ import annotations

import subprocess
import sys

import click

from bot import shipped


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report(arguments: tuple[str, ...]) -> None:
    """Tell a bot that a job began or ended; `ootbot report --help` lists the options of actions/report."""
    command = [sys.executable, "-E", "-s", "-B", str(shipped.report_script()), *arguments]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - our own script
