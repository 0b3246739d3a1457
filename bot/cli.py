"""The command line `ootbot`: its own commands and those of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bot import __version__
from bot.console.serve import demo, serve
from bot.console.setup import settings
from bot.core.feature import load
from bot.features import FEATURES

if TYPE_CHECKING:
    from bot.core.feature import Features


def make_cli(features: Features) -> click.Group:
    """Return the command line with the commands of some features."""

    @click.group(name="ootbot", context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name="ootbot")
    @click.pass_context
    def group(context: click.Context) -> None:
        """One self-hosted GitHub App that closes the CI loop between a project and its out-of-tree backends."""
        context.obj = features

    for command in (serve, demo, settings):
        group.add_command(command)
    for feature in features:
        for reference in feature.commands.values():
            group.add_command(load(reference))
    _show_whole_sentences(group)
    return group


def _show_whole_sentences(group: click.Group) -> None:
    """Make lists of commands show the whole first paragraph of each, which click would cut."""
    for command in group.commands.values():
        first = (command.help or "").strip().partition("\n\n")[0]
        command.short_help = " ".join(first.replace("\b", "").split())
        if isinstance(command, click.Group):
            _show_whole_sentences(command)


main = make_cli(FEATURES)

if __name__ == "__main__":
    main()
