"""ootbot serve and ootbot demo: run the bot, or the whole loop on this machine."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot import __version__
from bot.console.common import config_option, features, load_settings, require_free, run_work
from bot.core import files

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.processes import Child

SERVE_HELP = """Run the bot: webhooks, callbacks, pages and the worker.

\b
Settings come from the environment (OOTBOT_<NAME>) or ootbot.toml; environment wins.
\b
  OOTBOT_APP_ID=123 OOTBOT_PRIVATE_KEY_PATH=key.pem OOTBOT_WEBHOOK_SECRET=... \\
  OOTBOT_UPSTREAM_REPO=org/project OOTBOT_ALLOWLIST=allowlist.yml ootbot serve
  ootbot serve --config /etc/ootbot.toml
\b
On SQLite and two cores or more this command starts and supervises two more processes, so that webhooks wait neither for
work nor for pages; --processes 1 keeps everything in one. With a PostgreSQL, --role web serves the endpoints and pages
and --role worker does the work, each in as many processes as needed; a worker answers /healthz, /readyz and /metrics on
its own port.

Where GitHub cannot reach this machine, --pull reads its delivery log every few seconds instead of waiting for webhooks.
"""


@click.command(help=SERVE_HELP)
@config_option
@click.option(
    "--pull", is_flag=True, help="Take deliveries out of GitHub's log; the same as OOTBOT_RECEIVE=pull."
)
@click.option(
    "--role", type=click.Choice(("web", "worker", "all")), help="What this process does; same as OOTBOT_ROLE."
)
@click.option(
    "--processes",
    type=click.Choice(("auto", "1", "3")),
    help="Processes of role all: auto is 3 for SQLite on two cores or more; same as OOTBOT_PROCESSES.",
)
@click.option("--host", help="The address to listen on; same as OOTBOT_HOST.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port to listen on, 0 a free one; same as OOTBOT_PORT."
)
def serve(
    config: Path | None,
    role: str | None,
    processes: str | None,
    host: str | None,
    port: int | None,
    *,
    pull: bool,
) -> None:
    """Run the bot."""
    gc.disable()  # until `memory.settle_in`: what is read now stays, and going through it takes a fifth of the start
    chosen = load_settings(config)
    chosen = replace(chosen, role=role or chosen.role, processes=processes or chosen.processes)
    from bot import serving  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy

    chosen = replace(
        chosen,
        host=host or chosen.host,
        port=chosen.port if port is None else port,
    )
    if pull:
        chosen = replace(chosen, receive="pull")
    run_work(
        serving.serve(
            chosen,
            features=features(),
            others=_fork_others() if _has_family(chosen) else None,
            ready=lambda address: click.echo(f"ootbot {__version__} at {address}"),
        )
    )


@click.command()
@click.option(
    "--once", is_flag=True, help="Play the scenario, verify what the pull request shows, exit with 0 or 1."
)
@click.option(
    "--github",
    is_flag=True,
    help="Run only the GitHub and the backends, to try an installation with: docs/install-try.md.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port of the bot, or with --github of GitHub; 0 picks a free one.  [default: 8700 if it is free]",
)
@click.option(
    "--preset", type=click.Choice(sorted(files.read_presets())), help="Run the bot with this preset."
)
@click.option(
    "--sink",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for copies: an archive of deliveries, and what PyTorch's tools read; needs the extra s3.",
)
def demo(*, once: bool, github: bool, port: int | None, preset: str | None, sink: Path | None) -> None:
    r"""Run the whole loop on this machine: bot, GitHub, five backends and an identity provider.

    Nothing leaves loopback and no data is kept, but copies in the folder of --sink: with --once they are compared with
    what is stored, and a second database is rebuilt from them. It prints the addresses first, then one line per event.

    \b
      ootbot demo                     at http://127.0.0.1:8700, GitHub at http://127.0.0.1:8701
      ootbot demo --once              what CI runs
      ootbot demo --github --port 8900
    """
    from bot.console import demo_past  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.demo import main  # noqa: PLC0415 - only the demo needs its GitHub

    require_free(port or 0)
    if github:
        run_work(main.serve(port or 0))
        return
    chosen = main.Choices(
        once=once,
        port=port,
        preset=preset,
        sink=sink and sink.resolve(),
        write_past=demo_past.write_past,
    )
    sys.exit(asyncio.run(main.main(chosen)))


def _fork_others() -> dict[str, Child] | None:
    """Fork the other processes, once there is no more to read that all of them need."""
    from bot import (  # noqa: PLC0415
        app,
        processes,
    )
    from bot.console import member  # noqa: PLC0415

    app.read_program(features())
    try:
        return processes.fork_processes(processes.PROCESS_NAMES, member.become)
    except OSError as error:
        click.echo(
            f"ootbot: warning: more processes cannot be started, so one does everything: {error}", err=True
        )
        return None


def _has_family(settings: Settings) -> bool:
    """Whether this process starts others: for SQLite on two cores or more, unless the settings say otherwise."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = settings.processes == "3" or (
        settings.processes == "auto" and cores > 1 and settings.database.startswith("sqlite")
    )
    return settings.role == "all" and wanted
