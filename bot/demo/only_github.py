"""What does somebody need who wants to try an installation first? A GitHub on loopback with backends, and no bot."""

from __future__ import annotations

import asyncio
import signal

import click

from bot.demo.backends import Backends, PlannedJob
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer

ISSUER_PATH = "/_services/token"  # where a GitHub Enterprise Server has its issuer
UPSTREAM = "example-org/project"
BOT = "http://127.0.0.1:8080"  # where `ootbot serve` listens unless told otherwise
BACKENDS = ("example-org/riscv", "example-org/npu", "example-org/gpu")
JOBS = (PlannedJob(name="build", counts={"passed": 12, "failed": 0, "skipped": 1}), PlannedJob(name="test"))


async def main(port: int) -> None:
    """Serve until interrupted; no App is registered on it yet."""
    github, issuer = SimulatedGitHub(), Issuer()
    github.also = lambda application: issuer.add_to(application, ISSUER_PATH)
    await github.start(port)
    issuer.url = github.url + ISSUER_PATH
    backends = Backends(github, issuer)
    for name in (UPSTREAM, *BACKENDS):
        github.add_repo(name)
    for name in BACKENDS:
        backends.add(name, *JOBS)
    click.echo(f"a GitHub at {github.url}, its API at {github.api_url}; Ctrl-C ends it, nothing is kept")
    click.echo("next, in another terminal, register an App on it (docs/install.md goes on from there):")
    click.echo(f"  ootbot init --upstream {UPSTREAM} --public-url {BOT} --github-api-url {github.api_url}")
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    try:
        await stop.wait()
    finally:
        await backends.stop()
        await github.stop()
