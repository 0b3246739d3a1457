"""ootbot init, settings and doctor: register the GitHub App, write its options, check everything it depends on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import (
    SETTINGS_NEXT,
    config_option,
    feature_settings,
    features,
    refuse,
    require_free,
    run_work,
)
from bot.core import files, log_output, setting_types, settings_loading
from bot.core.errors import Misconfigured
from bot.core.feature import Finding, error
from bot.core.settings import Settings, options
from bot.core.text import plural
from bot.ops.registration_files import GITHUB, SettingsFiles, WantedApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web

    from bot.github.manifest import Role

REGISTRATION_PATIENCE = 3600  # seconds: GitHub's code expires after an hour
LAST_PAGE = 30  # seconds the browser gets to fetch it
INIT_HELP = """Register the GitHub App and write the settings.

\b
It prints an address on this machine that works once. Open it in a browser: it shows what the App may do and why, and
hands it to GitHub. GitHub's answer becomes files in --folder, readable by you alone: settings and the private key.
\b
  ootbot init --upstream org/project --public-url https://ootbot.example.org --organization org
  ootbot init --two-apps ...        one App for upstream, one for the backends; see docs/install-register.md
  ootbot init --two-apps --folder . again, after one App was registered: adds the other
\b
From another machine: ssh -L 8123:127.0.0.1:8123 server, and --port 8123.
"""
UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
INTRODUCTION = """# Settings

Environment `OOTBOT_<NAME>`, a key of `ootbot.toml`, or a line of an `.env` file (`--config FILE`); environment
wins. Missing, misspelt or wrong ones are all reported at once, with exit code 2. Durations are `90s`, `30m`, `6h`,
`2d`. Plain http is accepted only to loopback. `ootbot settings` prints them as a file to copy from.

| name | default | meaning |
|---|---|---|
"""
KEY_FILES = """
`PRIVATE_KEY_PATH` and `RELAY_PRIVATE_KEY_PATH` name files to read `PRIVATE_KEY` and `RELAY_PRIVATE_KEY` from.
"""
PRESETS = """
## Presets

`PRESET` sets several options by one name; one that is set by its own name wins. `ootbot settings --preset NAME` prints
what a preset sets, `ootbot doctor` says which one is on.
"""
COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
DOCTOR_HELP = """Look at everything the bot depends on, and say what to do.

\b
Settings, keys, clock, disk, database, allowlist, the App's permissions, events and installations on GitHub, the webhook
from both sides, and when something last came in. Run it where the bot runs, with its settings; the bot may be running.
It changes nothing, except that the bot receives one ping.
\b
Exit code: 0 when there is no error (warnings allowed), 1 otherwise.
"""


def _reader(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return a callback that reads an option as the setting of that kind is read."""

    def callback(_context: click.Context, _option: click.Parameter, value: str) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _one_repository(text: str) -> str:
    names = setting_types.repositories(text)
    if len(names) != 1:
        raise ValueError("write one repository, owner/name; further ones go into the settings later")
    return names[0]


@click.command(help=INIT_HELP)
@click.option(
    "--upstream",
    prompt="Upstream repository (owner/name)",
    callback=_reader(_one_repository),
    help="The watched repository.",
)
@click.option(
    "--public-url",
    prompt="Public address of the bot (https://...)",
    callback=_reader(setting_types.public_url),
    help="Where GitHub and people reach the bot.",
)
@click.option(
    "--organization", default="", help="Who owns the App; without it, the account that is signed in."
)
@click.option("--two-apps", is_flag=True, help="One App for upstream, another one for the backends.")
@click.option(
    "--workflow-dispatch",
    is_flag=True,
    help="Every backend is started by workflow_dispatch: no contents write.",
)
@click.option(
    "--statuses",
    is_flag=True,
    help="Ask for commit statuses as well: other CIs than GitHub Actions set them.",
)
@click.option(
    "--private", is_flag=True, help="All backends belong to the App's owner: no other account can install it."
)
@click.option(
    "--name", default="", help="The App's name, unique on GitHub; default: ootbot and the upstream owner."
)
@click.option(
    "--allowlist",
    default="allowlist.yml",
    show_default=True,
    help="A file in --folder, or owner/repo:path@ref.",
)
@click.option(
    "--github-api-url",
    default=GITHUB,
    show_default=True,
    callback=_reader(setting_types.https_url),
    help="GitHub Enterprise Server: https://HOST/api/v3.",
)
@click.option(
    "--proxy",
    default="",
    callback=_reader(lambda text: setting_types.proxy_url(text) if text else None),
    help="An HTTP proxy for calls to GitHub: http://host:port.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="Where the files go.",
)
@click.option(
    "--data-dir",
    default="data",
    show_default=True,
    help="Where the bot will keep its data; a path in --folder, or absolute.",
)
@click.option("--env", is_flag=True, help="Write ootbot.env (systemd, containers) instead of ootbot.toml.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The page's port on loopback; 0 takes a free one.",
)
def init(*, folder: Path, env: bool, two_apps: bool, upstream: str, port: int, **answers: Any) -> None:
    """Register the App."""
    files = SettingsFiles(folder=folder, env=env)
    roles: tuple[Role, ...] = ("one",)
    if two_apps:
        roles = ("relay",) if files.lacks_relay else ("upstream", "relay")
    require_free(port)
    try:
        files.require_new(roles)
    except Misconfigured as error:
        refuse(error)
    run_work(_register(WantedApp(upstream_repo=upstream, roles=roles, **answers), files, port))


@click.command()
@click.option("--markdown", is_flag=True, help="As docs/settings.md.")
@click.option("--preset", type=click.Choice(sorted(files.read_presets())), help="Only what this preset sets.")
def settings(*, markdown: bool, preset: str | None) -> None:
    """Print every option with its default, ready to be copied into ootbot.toml."""
    if preset is not None:
        click.echo("\n".join(preset_table(preset)) if markdown else preset_toml(preset), nl=markdown)
        return
    click.echo(as_markdown() if markdown else as_toml(), nl=False)


def preset_toml(name: str) -> str:
    """Return what a preset sets, each option with its sentence and its default."""
    fields = options(Settings)
    lines = [
        f"# PRESET={name} sets the options below; one that is set by its own name wins.",
        f'preset = "{name}"',
    ]
    for option, text in files.read_presets()[name].items():
        field = fields[option]
        lines += ["", f"# {field.metadata['help']}", f"# default: {json.dumps(_default_of(field))}"]
        lines.append(f"# {option} = {json.dumps(text)}")
    return "\n".join(lines) + "\n"


def preset_table(name: str) -> list[str]:
    """Return the same as a table."""
    fields = options(Settings)
    return [
        f"| `PRESET={name}` sets | to | instead of |",
        "|---|---|---|",
        *(
            f"| `{option.upper()}` | `{text}` | {_default_in_words(fields[option])} |"
            for option, text in files.read_presets()[name].items()
        ),
    ]


def as_toml() -> str:
    """Return config/default.toml: each option commented out, with its sentence."""
    lines = [
        "# Every option of ootbot with its default. Copy what you change into ootbot.toml, or set OOTBOT_<NAME>."
    ]
    for field in options(Settings, *feature_settings()).values():
        required = "  # required" if field.metadata["required"] else ""
        lines += [
            "",
            f"# {field.metadata['help']}",
            f"# {field.name} = {json.dumps(_default_of(field))}{required}",
        ]
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """Return docs/settings.md."""
    rows = [
        f"| `{field.name.upper()}` | {_default_in_words(field)} | {field.metadata['help']} |"
        for field in options(Settings, *feature_settings()).values()
    ]
    return (
        INTRODUCTION
        + "\n".join(rows)
        + "\n"
        + KEY_FILES
        + PRESETS
        + "".join("\n" + "\n".join(preset_table(name)) + "\n" for name in files.read_presets())
    )


@click.command(help=DOCTOR_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def doctor(config: Path | None, *, as_json: bool) -> None:
    """Examine."""
    try:
        chosen, warnings = settings_loading.load(os.environ, config, features=feature_settings())
    except Misconfigured as problem:
        _end_checks(
            [
                _print_finding(error("settings", each, SETTINGS_NEXT), quiet=as_json)
                for each in problem.problems
            ],
            as_json=as_json,
        )
        return
    log_output.configure(fmt=chosen.log_format, level="critical")  # what is wrong becomes a finding
    findings: list[Finding] = []
    secrets = settings_loading.secret_files(os.environ, config, features=feature_settings())
    run_work(_examine(chosen, warnings, secrets, findings, quiet=as_json))
    _end_checks(findings, as_json=as_json)


async def _register(wanted: WantedApp, files: SettingsFiles, port: int) -> None:
    from bot.app import http_session  # noqa: PLC0415 - the other commands start without aiohttp
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the same
    from bot.ops.registration import RegistrationPage  # noqa: PLC0415 - the same

    if wanted.shut_out:
        click.echo(
            f"warning: only its owner can install the App for {wanted.upstream_repo}: say --organization "
            f"{wanted.shut_out}, unless that is the account you are signed in with on GitHub"
        )
    async with http_session(wanted.proxy) as http:
        setup = RegistrationPage(wanted, files, http=http, clock=SystemClock(), tell=click.echo)
        with contextlib.closing(socket.create_server(("127.0.0.1", port))) as listening:
            async with _serving_app(setup.app(listening.getsockname()[1]), listening):
                click.echo(f"open this address; it works once:\n  {setup.address}")
                try:
                    await asyncio.wait_for(setup.finished.wait(), REGISTRATION_PATIENCE)
                except TimeoutError:
                    raise Misconfigured(["the registration was not finished within an hour"]) from None
    for made in setup.made:
        click.echo(f"install it: {made.html_url}/installations/new")
    click.echo(f"say who takes part: {files.allowlist(wanted)}")
    click.echo(
        f"settings: {files.settings}"
        + ("" if files.env else f"; start: ootbot serve --config {files.settings}")
    )


@contextlib.asynccontextmanager
async def _serving_app(app: web.Application, listening: socket.socket) -> AsyncIterator[None]:
    from aiohttp import web  # noqa: PLC0415 - the other commands start without it

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=LAST_PAGE)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield
    finally:
        await runner.cleanup()


def _default_in_words(field: dataclasses.Field[Any]) -> str:
    default = _default_of(field)
    return "required" if field.metadata["required"] else "unset" if default == "" else f"`{default}`"


def _default_of(field: dataclasses.Field[Any]) -> str | int:
    """Return a default as it would be written in TOML; nothing is the empty text."""
    value: Any = field.default
    if value is None:
        return ""
    if field.metadata["read"] is setting_types.duration:
        return next(f"{value // unit}{name}" for unit, name in UNITS if value % unit == 0)
    if show := field.metadata["show"]:
        return str(show(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, int) else str(value)


async def _examine(
    chosen: Settings, warnings: list[str], files: list[Path], findings: list[Finding], *, quiet: bool
) -> None:
    from bot.app import http_session  # noqa: PLC0415 - the other commands start without aiohttp
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the same
    from bot.core.feature import load  # noqa: PLC0415 - the same
    from bot.db.store import Store  # noqa: PLC0415 - the same
    from bot.ops import doctor as checked  # noqa: PLC0415 - the same

    clock = SystemClock()
    here = (
        *checked.check_settings(chosen, warnings),
        *checked.check_preset(chosen),
        *checked.check_key_files(files),
    )
    findings += [_print_finding(each, quiet=quiet) for each in here]
    store = Store(chosen.database, clock=clock)
    try:
        async with http_session(chosen.proxy) as http:
            apps = checked.apps_under_test(chosen, http, clock)
            named = (
                {each.name: each.doctor} if isinstance(each.doctor, str) else each.doctor
                for each in features()
            )
            checks = tuple((name, load(check)) for each in named for name, check in each.items() if check)
            examined = checked.Target(
                settings=chosen, store=store, http=http, clock=clock, apps=apps, checks=checks
            )
            async for each in checked.run_checks(examined):
                findings.append(_print_finding(each, quiet=quiet))
    except Misconfigured as problem:
        findings += [
            _print_finding(error("key", each, "name the .pem file that GitHub offered"), quiet=quiet)
            for each in problem.problems
        ]
    finally:
        await store.close()


def _print_finding(finding: Finding, *, quiet: bool) -> Finding:
    if not quiet:
        status = click.style(f"{finding.status:8}", fg=COLOURS[finding.status])
        click.echo(f"{status} {finding.name}: {finding.detail}")
        if finding.next:
            click.echo(f"         -> {finding.next}")
    return finding


def _end_checks(findings: list[Finding], *, as_json: bool) -> None:
    errors = sum(each.status == "error" for each in findings)
    warnings = sum(each.status == "warning" for each in findings)
    if as_json:
        checks = [dataclasses.asdict(each) for each in findings]
        click.echo(json.dumps({"ok": not errors, "errors": errors, "warnings": warnings, "checks": checks}))
    else:
        click.echo(f"{plural(errors, 'error')}, {plural(warnings, 'warning')}")
    sys.exit(1 if errors else 0)
