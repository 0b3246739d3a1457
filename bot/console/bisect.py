"""ootbot bisect: find the upstream commit that broke a backend by running it; list and cancel such searches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import config_option, load_settings, run_work

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings
    from bot.oot.culprits.tables import BisectRow

LISTED = 50


@click.group()
def bisect() -> None:
    """Find the upstream commit that broke a backend, by running the backend on commits of the branch."""


@bisect.command()
@click.argument("backend")
@click.argument("what", required=False, default="")
@click.option("--repo", default="", help="Upstream repository; default: the first of UPSTREAM_REPO.")
@click.option("--branch", default="", help="Branch of it; default: its default branch.")
@click.option("--good", default="", help="A commit on which it passed; default: the last one known.")
@click.option("--bad", default="", help="A later commit on which it failed; default: the first one known.")
@click.option("--signature", default="", help="Only failures of this signature count.")
@click.option("--reason", default="", help="A sentence for those who read the page.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def start(
    backend: str, what: str, config: Path | None, *, repo: str, branch: str, good: str, bad: str, signature: str,
    reason: str, as_json: bool,
) -> None:  # fmt: skip
    """Begin a search for the commit that broke BACKEND: its device, owner/repo, or `upstream` for its own CI.

    WHAT is a job or a test of it; without it the one job that fails. The running bot sends the runs.

    \b
      ootbot bisect start npu
      ootbot bisect start npu TestMatmul.test_bf16
      ootbot bisect start example-org/npu "CI / build" --good a1b2c3d --bad d4e5f6a
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    from bot.oot.culprits.start import Wanted  # noqa: PLC0415 - other commands start without SQLAlchemy

    wanted = Wanted(
        repo=repo or settings.upstream_repo[0],
        backend=backend,
        what=what,
        signature=signature,
        branch=branch,
        good=good,
        bad=bad,
        by="the operator",
        reason=reason,
    )
    row, is_new = run_work(_start(settings, wanted))
    if as_json:
        click.echo(json.dumps({"new": is_new, **_as_json(row, settings)}))
        return
    began = "began" if is_new else "is under way already:"
    click.echo(f"search {row['id']} {began} between {row['good_sha'][:7]} and {row['bad_sha'][:7]}")
    click.echo(f"  {_page(row, settings)}")


@bisect.command(name="list")
@click.option("--repo", default="", help="Upstream repository; default: the first of UPSTREAM_REPO.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def list_searches(config: Path | None, *, repo: str, as_json: bool) -> None:
    """List searches, the newest first.

    \b
      ootbot bisect list
      ootbot bisect list --json | jq -r 'select(.state == "found") | .culprit_sha'
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    found = run_work(_list(settings, repo or settings.upstream_repo[0]))
    if not found and not as_json:
        click.echo("no search yet: `ootbot bisect start BACKEND` begins one")
    for row in found:
        if as_json:
            click.echo(json.dumps(_as_json(row, settings)))
        else:
            name = row["test"] or row["job"]
            click.echo(f"{row['id']}  {row['state']:<9}  {row['backend'] or 'upstream'}  {name}")
            click.echo(f"            {row['why'] or 'begins in a moment'}")


@bisect.command()
@click.argument("search")
@config_option
def cancel(search: str, config: Path | None) -> None:
    """Cancel SEARCH, by its id: nothing more is sent, what runs is left to end.

    \b
      ootbot bisect cancel 4f1d9c2ab0
    """  # noqa: D301 - click's mark for lines to be kept as they are
    settings = load_settings(config)
    run_work(_cancel(settings, search))
    click.echo(f"search {search} is cancelled")


async def _start(settings: Settings, wanted: Any) -> tuple[BisectRow, bool]:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.oot.culprits import command  # noqa: PLC0415 - the same
    from bot.oot.culprits.refused import Refused  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        try:
            started = await command.begin(context, wanted)
        except Refused as reason:
            raise click.ClickException(str(reason)) from reason
    return started.row, started.is_new


async def _list(settings: Settings, repo: str) -> list[BisectRow]:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.ci.trunk import branch_history  # noqa: PLC0415 - the same
    from bot.oot.culprits import rows  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.read() as tx:
        branch = await branch_history.find_branch(tx, repo, "")
        if branch is None:
            raise click.ClickException(
                f"nothing is known of {repo} yet: name one of UPSTREAM_REPO with --repo"
            )
        return await rows.searches_of(tx, branch.repository["repository_id"], limit=LISTED)


async def _cancel(settings: Settings, search: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - see `start`
    from bot.oot.culprits.refused import Refused  # noqa: PLC0415 - the same
    from bot.oot.culprits.start import cancel_search  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.transaction() as tx:
        try:
            await cancel_search(tx, search, by="the operator")
        except Refused as reason:
            raise click.ClickException(f"{reason}: `ootbot bisect list` has them") from reason


def _as_json(row: BisectRow, settings: Settings) -> dict[str, Any]:
    return {**row, "page_url": _page(row, settings)}


def _page(row: BisectRow, settings: Settings) -> str:
    return f"{settings.url}/{row['upstream_repo']}/bisects/{row['id']}"
