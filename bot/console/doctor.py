"""ootbot doctor: check everything the bot depends on, with the next step for each finding."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

import click

from bot.console.common import SETTINGS_NEXT, config_option, feature_settings, features, run_work
from bot.core import log_output, settings_loading
from bot.core.errors import Misconfigured
from bot.core.finding import Finding, error
from bot.core.text import plural

if TYPE_CHECKING:
    from pathlib import Path

    from bot.core.settings import Settings

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
HELP = """Look at everything the bot depends on, and say what to do.

\b
Settings, keys, clock, disk, database, allowlist, the App's permissions, events and installations on GitHub, the webhook
from both sides, and when something last came in. Run it where the bot runs, with its settings; the bot may be running.
It changes nothing, except that the bot receives one ping.
\b
Exit code: 0 when there is no error (warnings allowed), 1 otherwise.
"""


@click.command(help=HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def doctor(config: Path | None, *, as_json: bool) -> None:
    """Examine."""
    try:
        chosen, warnings = settings_loading.load(os.environ, config, features=feature_settings())
    except Misconfigured as problem:
        _end(
            [_shown(error("settings", each, SETTINGS_NEXT), quiet=as_json) for each in problem.problems],
            as_json=as_json,
        )
        return
    log_output.configure(fmt=chosen.log_format, level="critical")  # what is wrong becomes a finding
    found: list[Finding] = []
    secrets = settings_loading.secret_files(os.environ, config, features=feature_settings())
    run_work(_examine(chosen, warnings, secrets, found, quiet=as_json))
    _end(found, as_json=as_json)


async def _examine(
    chosen: Settings, warnings: list[str], files: list[Path], found: list[Finding], *, quiet: bool
) -> None:
    from bot.app import http_session  # noqa: PLC0415 - the other commands start without aiohttp
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the same
    from bot.core.feature import load  # noqa: PLC0415 - the same
    from bot.db.store import Store  # noqa: PLC0415 - the same
    from bot.ops.doctor import local, target  # noqa: PLC0415 - the same

    clock = SystemClock()
    here = (*local.settings(chosen, warnings), *local.preset(chosen), *local.keys(files))
    found += [_shown(each, quiet=quiet) for each in here]
    store = Store(chosen.database, clock=clock)
    try:
        async with http_session(chosen.proxy) as http:
            apps = target.apps(chosen, http, clock)
            checks = tuple((each.name, load(each.doctor)) for each in features() if each.doctor)
            examined = target.Target(
                settings=chosen, store=store, http=http, clock=clock, apps=apps, checks=checks
            )
            async for each in local.everything(examined):
                found.append(_shown(each, quiet=quiet))
    except Misconfigured as problem:
        found += [
            _shown(error("key", each, "name the .pem file that GitHub offered"), quiet=quiet)
            for each in problem.problems
        ]
    finally:
        await store.close()


def _shown(finding: Finding, *, quiet: bool) -> Finding:
    if not quiet:
        status = click.style(f"{finding.status:8}", fg=COLOURS[finding.status])
        click.echo(f"{status} {finding.name}: {finding.detail}")
        if finding.next:
            click.echo(f"         -> {finding.next}")
    return finding


def _end(found: list[Finding], *, as_json: bool) -> None:
    errors = sum(each.status == "error" for each in found)
    warnings = sum(each.status == "warning" for each in found)
    if as_json:
        checks = [dataclasses.asdict(each) for each in found]
        click.echo(json.dumps({"ok": not errors, "errors": errors, "warnings": warnings, "checks": checks}))
    else:
        click.echo(f"{plural(errors, 'error')}, {plural(warnings, 'warning')}")
    sys.exit(1 if errors else 0)
