"""ootbot keys: static keys for backends whose CI cannot vouch for its jobs with OpenID Connect."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings
from bot.console.database import change_database, read_database

if TYPE_CHECKING:
    from pathlib import Path

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry


@click.group()
def keys() -> None:
    """Make, list and revoke static keys.

    A key speaks for one backend, at L2 unless its entry says more: nothing ties it to a run. Keys take effect, and
    end, at once.
    """


@keys.command()
@click.argument("repo")
@click.option("--note", default="", help="What it is for, such as the CI that uses it.")
@config_option
def add(repo: str, note: str, config: Path | None) -> None:
    """Make a key for the backend REPO (owner/name) and print it: it cannot be read again.

    \b
      ootbot keys add example-org/riscv --note jenkins
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.core import setting_types  # noqa: PLC0415 - only this command reads a repository's name
    from bot.oot.allowlist import rows as allowlists  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.oot.reports.store import static_keys as rows  # noqa: PLC0415 - see above

    try:
        (name,) = setting_types.repositories(repo)
    except ValueError as error:
        raise click.BadParameter(str(error) or f"{repo!r} is not one repository") from None

    async def work(tx: Transaction) -> tuple[str, Entry | None]:
        allowlist = await allowlists.in_force(tx)
        return await rows.add_key(tx, name, note=note), allowlist.find(name) if allowlist else None

    made, entry = change_database(load_settings(config), work)
    click.echo(made)
    if entry is None or entry.level < 2 or entry.static_key != "allowed":
        where = "not in the allowlist" if entry is None else f"at L{entry.level}"
        click.echo(
            f"ootbot: {name} is {where}; keys are accepted at L2, above it only with static_key: allowed",
            err=True,
        )


@keys.command("list")
@config_option
def list_keys(config: Path | None) -> None:
    """Print every key: id, backend, when it was made, last used and revoked, note. The keys themselves are not kept."""
    from bot.core.json_fields import iso_time  # noqa: PLC0415 - the other commands start without it
    from bot.oot.reports.store import static_keys as rows  # noqa: PLC0415 - the other commands start without SQLAlchemy

    for row in read_database(load_settings(config), rows.list_keys):
        times = {"made": row["created_at"], "used": row["used_at"], "revoked": row["revoked_at"]}
        words = [f"{what} {iso_time(at // 1000 * 1000) if at else 'never'}" for what, at in times.items()]
        click.echo("  ".join([row["id"], row["repo"], *words, row["note"]]).rstrip())


@keys.command()
@click.argument("identifier", metavar="ID")
@config_option
def revoke(identifier: str, config: Path | None) -> None:
    """Make the key with this ID useless, from now on."""
    from bot.oot.reports.store import static_keys as rows  # noqa: PLC0415 - the other commands start without SQLAlchemy

    async def work(tx: Transaction) -> bool:
        return await rows.revoke_key(tx, identifier)

    if not change_database(load_settings(config), work):
        click.echo(f"ootbot: there is no key {identifier} in use: `ootbot keys list` shows all", err=True)
        sys.exit(1)
    click.echo(f"revoked {identifier}")
