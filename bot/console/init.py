"""ootbot init: register the GitHub App, or both, and write the settings."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import refuse, require_free, run_work
from bot.core import setting_types
from bot.core.errors import Misconfigured
from bot.ops.setup.files import GITHUB, Files, Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import web

    from bot.github.manifest import Role

PATIENCE = 3600  # seconds: GitHub's code expires after an hour
LAST_PAGE = 30  # seconds the browser gets to fetch it
HELP = """Register the GitHub App and write the settings.

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


def _reader(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return a callback that reads an option as the setting of that kind is read."""

    def callback(_context: click.Context, _option: click.Parameter, value: str) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _one_repository(text: str) -> str:
    found = setting_types.repositories(text)
    if len(found) != 1:
        raise ValueError("write one repository, owner/name; further ones go into the settings later")
    return found[0]


@click.command(help=HELP)
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
    files = Files(folder=folder, env=env)
    roles: tuple[Role, ...] = ("one",)
    if two_apps:
        roles = ("relay",) if files.lacks_relay else ("upstream", "relay")
    require_free(port)
    try:
        files.require_new(roles)
    except Misconfigured as error:
        refuse(error)
    run_work(_register(Wanted(upstream_repo=upstream, roles=roles, **answers), files, port))


async def _register(wanted: Wanted, files: Files, port: int) -> None:
    from bot.app import http_session  # noqa: PLC0415 - the other commands start without aiohttp
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the same
    from bot.ops.setup.server import Setup  # noqa: PLC0415 - the same

    if wanted.shut_out:
        click.echo(
            f"warning: only its owner can install the App for {wanted.upstream_repo}: say --organization "
            f"{wanted.shut_out}, unless that is the account you are signed in with on GitHub"
        )
    async with http_session(wanted.proxy) as http:
        setup = Setup(wanted, files, http=http, clock=SystemClock(), tell=click.echo)
        with contextlib.closing(socket.create_server(("127.0.0.1", port))) as listening:
            async with _serving(setup.app(listening.getsockname()[1]), listening):
                click.echo(f"open this address; it works once:\n  {setup.address}")
                try:
                    await asyncio.wait_for(setup.finished.wait(), PATIENCE)
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
async def _serving(app: web.Application, listening: socket.socket) -> AsyncIterator[None]:
    from aiohttp import web  # noqa: PLC0415 - the other commands start without it

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=LAST_PAGE)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield
    finally:
        await runner.cleanup()
