"""What can be done from the command line? The commands, each a module of `bot.commands`."""

from __future__ import annotations

import click

from bot import __version__
from bot.commands.allowlist import allowlist
from bot.commands.backup import backup
from bot.commands.demo import demo
from bot.commands.doctor import doctor
from bot.commands.init import init
from bot.commands.keys import keys
from bot.commands.redeliver import redeliver
from bot.commands.replay import replay
from bot.commands.report import report
from bot.commands.serve import serve
from bot.commands.settings import settings
from bot.commands.tasks import tasks


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ootbot")
def main() -> None:
    """One self-hosted GitHub App that closes the CI loop between a project and its out-of-tree backends."""


for command in (
    serve,
    demo,
    init,
    doctor,
    allowlist,
    settings,
    replay,
    redeliver,
    keys,
    report,
    backup,
    tasks,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
