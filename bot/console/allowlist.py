"""ootbot allowlist: look at allowlist files, and at the one in force."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings
from bot.console.database import read_database
from bot.core import presets
from bot.oot.allowlist import allowlist as allowlist_file

if TYPE_CHECKING:
    from pathlib import Path

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.tables import VersionRow
    from bot.oot.dispatch.explain import Explanation

MOST_DIGITS = 18  # of a number that every database takes


@click.group()
def allowlist() -> None:
    """Look at allowlist files, and at the one in force."""


@allowlist.command()
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option(
    "--preset",
    type=click.Choice(sorted(presets.read_presets())),
    help="Read it as under this preset's DEFAULT_EVENTS.",
)
def check(file: IO[bytes], *, as_json: bool, preset: str | None) -> None:
    """Say what is wrong with an allowlist FILE (- reads standard input), all of it at once; exit 1 if anything is.

    \b
      ootbot allowlist check config/allowlist.example.yml
    """  # noqa: D301 - click's mark for lines to be kept as they are
    events = presets.read_presets()[preset].get("default_events", "") if preset else ""
    try:
        found = allowlist_file.parse(file.read(), *([frozenset(events.split(","))] if events else []))
    except allowlist_file.AllowlistError as error:
        if as_json:
            problems = [{"line": problem.line, "message": problem.message} for problem in error.problems]
            click.echo(json.dumps({"ok": False, "problems": problems}))
        else:
            click.echo(allowlist_file.render_errors(error), err=True)
        sys.exit(1)
    if as_json:
        levels = {f"L{level}": [entry.repo for entry in found.at(level)] for level in range(1, 5)}
        click.echo(json.dumps({"ok": True, "backends": len(found.entries), "levels": levels}))
    else:
        click.echo(f"ok: {_counted(found)}")


@allowlist.command()
@config_option
def show(config: Path | None) -> None:
    """Print the version in force, since when, and what is wrong with the newest; exit 1 if none is in force."""
    from bot.oot.allowlist import rows as allowlists  # noqa: PLC0415 - check starts without SQLAlchemy

    async def work(tx: Transaction) -> tuple[VersionRow | None, VersionRow | None]:
        return await allowlists.last_good(tx), await allowlists.newest(tx)

    settings = load_settings(config)
    version, newest = read_database(settings, work)
    if newest and not newest["valid"]:
        click.echo(f"the newest, read {_time(newest['loaded_at'])}, is not in force:", err=True)
        click.echo(newest["error"], err=True)
    if version is None:
        click.echo(f"no valid version of {settings.allowlist} has been read yet", err=True)
        sys.exit(1)
    click.echo(f"# {version['source']}, in force since {_time(version['loaded_at'])}")
    click.echo(f"# {_counted(allowlists.parsed(version))}")
    click.echo(version["content"].rstrip("\n"))


@allowlist.command()
@click.argument("pull", metavar="OWNER/REPO#NUMBER")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def explain(pull: str, config: Path | None, *, as_json: bool) -> None:
    """Say of each backend whether it was sent a pull request's newest head, and the rule that decided.

    \b
      ootbot allowlist explain example-org/upstream#123
      ootbot allowlist explain example-org/upstream#123 --json | jq '.asked[] | select(.outcome == "skipped")'
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.oot.allowlist import rows as allowlists  # noqa: PLC0415 - check starts without SQLAlchemy
    from bot.oot.dispatch.explain import explain_pull  # noqa: PLC0415

    repo, _, number = pull.rpartition("#")
    if repo.count("/") != 1 or not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
        raise click.UsageError(f"{pull!r} names no pull request: write it as in owner/repo#123")
    settings = load_settings(config)

    async def work(tx: Transaction) -> tuple[Explanation | None, bool]:
        listed = await allowlists.in_force(tx) is not None
        return await explain_pull(tx, settings, repo, int(number)), listed

    found, listed = read_database(settings, work)
    if not listed:
        raise click.ClickException(
            f"no valid version of {settings.allowlist} has been read yet: `ootbot allowlist show` says more"
        )
    if found is None:
        raise click.ClickException(
            f"nothing is known of {pull}: is it a pull request of a watched repository, and has the bot run here?"
        )
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    click.echo(f"{found.repo}#{found.number} at {found.head_sha[:7]}")
    width = max((len(one.label) for one in found.asked), default=0)
    for one in found.asked:
        click.echo(f"  {one.label:{width}}  L{one.level}  {one.outcome:7}  {one.rule}: {one.why}")


def _counted(found: Allowlist) -> str:
    levels = ", ".join(f"{len(found.at(level))} at L{level}" for level in range(1, 5))
    return f"{len(found.entries)} backends, {levels}"


def _time(at: int) -> str:
    """Return epoch milliseconds as people read them."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
