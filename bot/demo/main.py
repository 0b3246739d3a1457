"""Entry point of `ootbot demo`: the scenario, printed event by event, then its findings or an endless demo."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from bot.demo import console_output, copies, environment
from bot.demo.backends import Backends, PlannedJob
from bot.demo.console_output import EventPrinter
from bot.demo.environment import BotFailedError, ExpectationError, Wanted
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.demo.participants import FPGA, NPU_LABEL
from bot.demo.scenario import Finding, Scenario, findings, stop_bot

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from bot.demo.environment import Environment, WritePast

# The bot checks for silent backends once a minute: a visitor sees it happen, `--once` ends before that.
START_TIMEOUT = "20s"
INTERRUPTED = 130
PORT, GITHUB_PORT = 8700, 8701  # of a demo that a visitor looks at, where they are free
T = TypeVar("T")

STARTING = "starting a GitHub, an identity provider, five backends, and the bot with a month of their reports"
INVITATION = """
That was the scenario; everything keeps running. On the page of #2, press Re-run on {check}: it passes then. Push
commits, set or remove the label {label}, comment: the backends answer, except {silent},
which is shown as not run after a minute or so. Ctrl-C stops the demo and deletes its data.
"""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the command line chose."""

    once: bool = False
    port: int | None = None  # the bot's, 0 a free one; None: the usual one, a free one if it is taken
    preset: str | None = None
    sink: Path | None = None  # a folder for copies of what the bot stores
    write_past: WritePast | None = None


async def main(choices: Choices) -> int:
    """Run the demo and return the exit code.

    With `once`: 1 when an expectation was not met, 130 when interrupted. Without it, the demo runs until it is
    interrupted, which counts as success: 0; 1 when the bot failed.
    """
    this_task = asyncio.current_task()
    assert this_task is not None
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, this_task.cancel)
    try:
        return await (_run_once(choices) if choices.once else _run_forever(choices))
    except BotFailedError as error:
        click.echo(f"FAILED: {error}")
        return 1
    except asyncio.CancelledError:  # by a signal; everything has been stopped by now
        return INTERRUPTED if choices.once else 0


def choose_port(port: int) -> int:
    """Return the usual port, or 0 for a free one where a program listens there."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            click.echo(f"port {port} is taken: a free one is used instead")
            return 0
    return port


def _wanted(choices: Choices) -> Wanted:
    return Wanted(
        port=choices.port or 0,
        preset=choices.preset,
        options=copies.options(choices.sink) if choices.sink else {},
        write_past=choices.write_past,
        progress=console_output.Progress().print,
    )


async def _run_once(choices: Choices) -> int:
    """Play the scenario, verify everything, stop, and return the exit code."""
    click.echo(STARTING)
    async with environment.running(_wanted(choices)) as env:
        console_output.print_addresses(env)
        scenario = Scenario(env)
        found = await _with(_played(scenario), EventPrinter(env).run(), env.bot.watch())
        summary = "\n".join(console_output.summary(env, scenario.pulls))
        if all(not finding.problem for finding in found):
            found += await _with(findings(env, scenario.pulls, scenario.own_jobs), env.bot.watch())
        click.echo(f"\n{summary}\n")
        if choices.sink:
            found += await _with(copies.compare(env.bot), env.bot.watch())
        found.append(await stop_bot(env))
        if choices.sink:
            found.append(await copies.rebuild(env.bot, choices.sink))
        return _conclude(found, env)


async def _run_forever(choices: Choices) -> int:
    """Play the scenario, then keep running; only an interruption or a failure ends this."""
    port = choose_port(PORT) if choices.port is None else choices.port
    wanted = replace(
        _wanted(choices), start_timeout=START_TIMEOUT, port=port, github_port=choose_port(GITHUB_PORT)
    )
    click.echo(STARTING)
    async with environment.running(wanted) as env:
        console_output.print_addresses(env)
        await _with(_play_and_wait(Scenario(env)), EventPrinter(env).run(), env.bot.watch())
    return 1


async def _play_and_wait(scenario: Scenario) -> None:
    found = await _played(scenario)
    if _conclude([finding for finding in found if finding.problem], scenario.environment) == 0:
        check = scenario.wanted.tpu
        click.echo(INVITATION.format(check=check, label=NPU_LABEL, silent=FPGA))
    await asyncio.Event().wait()


async def _played(scenario: Scenario) -> list[Finding]:
    """Play the scenario; return the expectations that were met, and last the one that was not."""
    failed = []
    try:
        await scenario.play()
    except ExpectationError as error:
        failed = [Finding(expectation=error.expectation, problem=str(error))]
    return [*(Finding(expectation=expectation) for expectation in scenario.fulfilled), *failed]


async def _with(work: Coroutine[object, object, T], *others: Coroutine[object, object, None]) -> T:
    """Do the work while the others run; they are cancelled when it ends, and an error in one of them ends it."""
    main_task = asyncio.create_task(work)
    tasks: list[asyncio.Task[object]] = [main_task, *map(asyncio.create_task, others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {main_task}:
            task.result()
        return await main_task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _conclude(found: list[Finding], env: Environment) -> int:
    """Print the findings, and the end of the bot's log when there is a problem; return the exit code."""
    console_output.print_findings(found)
    if not any(finding.problem for finding in found):
        return 0
    click.echo(f"\nThe end of the bot's log:\n{env.bot.log_tail()}")
    return 1


ISSUER_PATH = "/_services/token"  # where a GitHub Enterprise Server has its issuer


UPSTREAM = "example-org/project"


BOT = "http://127.0.0.1:8080"  # the default address of `ootbot serve`


BACKENDS = ("example-org/riscv", "example-org/npu", "example-org/gpu")


JOBS = (PlannedJob(name="build", counts={"passed": 12, "failed": 0, "skipped": 1}), PlannedJob(name="test"))


async def serve(port: int) -> None:
    """Serve until interrupted; no App is registered yet."""
    github, issuer = SimulatedGitHub(), Issuer()
    github.extra_routes = lambda application: issuer.add_to(application, ISSUER_PATH)
    await github.start(port)
    issuer.url = github.url + ISSUER_PATH
    backends = Backends(github, issuer)
    for name in (UPSTREAM, *BACKENDS):
        github.add_repo(name)
    for name in BACKENDS:
        backends.add(name, *JOBS)
    click.echo(f"a GitHub at {github.url}, its API at {github.api_url}; Ctrl-C stops it and deletes its data")
    click.echo(
        "next, in another terminal, register an App on it (docs/install-try.md has the further steps):"
    )
    click.echo(f"  ootbot init --upstream {UPSTREAM} --public-url {BOT} --github-api-url {github.api_url}")
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    try:
        await stop.wait()
    finally:
        await backends.stop()
        await github.stop()
