"""ootbot upstream: which repository the names in the settings mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings, run_work

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings


@click.group()
def upstream() -> None:
    """Say that another repository is upstream now.

    A name can change hands. The bot remembers the id of the repository that had the name first, and does nothing for
    another one: its deliveries are parked.
    """


@upstream.command()
@click.argument("repo")
@config_option
def accept(repo: str, config: Path | None) -> None:
    """Accept the repository that has the name REPO (owner/name) at GitHub now, and handle its parked deliveries.

    REPO is upstream, or the repository that the allowlist is read from.

    \b
      ootbot upstream accept example-org/project
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    from bot.oot.allowlist.source import on_github  # noqa: PLC0415 - the other commands start without PyYAML

    source = on_github(settings.allowlist)
    named = {name.casefold(): name for name in (*settings.upstream_repo, *([source.repo] if source else []))}
    if repo.casefold() not in named:
        raise click.BadParameter(f"{repo} is none of {', '.join(named.values())}: see UPSTREAM_REPO")
    run_work(_accept(settings, named[repo.casefold()]))


async def _accept(settings: Settings, repo: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ingest import pinned  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        now = await pinned.id_of(context.app_for(repo), repo)
        async with context.store.transaction() as tx:
            before = (await pinned.pinned_ids(tx)).get(repo.casefold())
            if before == now:
                click.echo(f"{repo} is already repository {now}")
                return
            handled = await pinned.accept(tx, repo, now)
    was = "" if before is None else f", it was {before}"
    deliveries = "1 delivery is" if handled == 1 else f"{handled} deliveries are"
    click.echo(f"{repo} is repository {now} from now on{was}; {deliveries} handled next")
