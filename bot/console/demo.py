"""ootbot demo: the whole loop on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from bot.console.common import require_free, run_work
from bot.core import presets


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
    "--preset", type=click.Choice(sorted(presets.read_presets())), help="Run the bot with this preset."
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
