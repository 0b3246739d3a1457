"""ootbot report: report a job to a bot, from any CI, by the script of the reporting action."""

from __future__ import annotations

import subprocess
import sys

import click

from bot.core import package_files


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report(arguments: tuple[str, ...]) -> None:
    """Report to a bot that a job began or ended; `ootbot report --help` lists the options of actions/report."""
    command = [sys.executable, "-E", "-s", "-B", str(package_files.report_script()), *arguments]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - our own script
