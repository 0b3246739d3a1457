"""ootbot ci, providers and report: collecting GitHub's CI, what to enter for other CIs, reporting a job from any."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import config_option, load_settings, run_work
from bot.console.upkeep import parse_span
from bot.core import files, text
from bot.core.json_fields import iso_time
from bot.core.text import duration, plural

if TYPE_CHECKING:
    from pathlib import Path

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.ingest.tables import DeliveryRow
    from bot.providers.feature import Guide

LOOK_EVERY = 2.0  # seconds between two looks at what is done
QUIET_FOR = 30.0  # seconds after which everything that is done is all there is
PATIENCE = 60.0  # seconds without any progress
COLLECT = """Collect the logs and artifacts of runs that are past.

\b
The running bot does the work, within its budget; this command waits for it and may be interrupted.
\b
  ootbot ci collect owner/repo --run 123456789
  ootbot ci collect owner/repo --since 2d --no-wait
"""

BACKFILL = """Fill the grid with commits from before the App was installed.

\b
What is known already is not asked for again: the command may be interrupted and given again. It needs about three
calls to GitHub for each commit, within CI_CALLS_PER_HOUR.
\b
  ootbot ci backfill owner/repo
  ootbot ci backfill owner/repo --branch release/2.1 --commits 500
"""
MOST_EVENTS = 5  # events
PROVIDERS_HELP = """Say what to enter in the forms of CircleCI and Buildkite, and what they sent last.

\b
Other CIs are named in the settings, [[providers]] in ootbot.toml: docs/providers.md.
\b
  ootbot providers
  ootbot providers --json
  ootbot providers --take-up      handle what came of projects that were mapped to no repository then
"""


@click.group()
def ci() -> None:
    """Collect CI's logs and artifacts, and see how far that is."""


@ci.command(help=COLLECT)
@click.argument("repo")
@click.option("--run", "run_id", type=click.IntRange(min=1), help="One run, by its id.")
@click.option("--since", callback=parse_span, help="All runs created since, such as 2d.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the running bot to finish.")
@config_option
def collect(repo: str, run_id: int | None, since: int | None, config: Path | None, *, no_wait: bool) -> None:
    """Collect runs that are past."""
    if (run_id is None) == (since is None):
        raise click.UsageError("say which runs: either --run or --since")
    run_work(_collect(load_settings(config), repo, run_id, since, wait=not no_wait))


@ci.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@config_option
def status(config: Path | None, *, as_json: bool) -> None:
    """Show how far collecting is, by repository."""
    run_work(_status(load_settings(config), as_json=as_json))


@ci.command(help=BACKFILL)
@click.argument("repo")
@click.option("--branch", default="", help="Without it the default branch.")
@click.option(
    "--commits", type=click.IntRange(1, 5000), default=100, show_default=True, help="How many, newest first."
)
@config_option
def backfill(repo: str, branch: str, commits: int, config: Path | None) -> None:
    """Fill the grid with what was before the App was installed."""
    run_work(_backfill(load_settings(config), repo, branch, commits))


@click.command(help=PROVIDERS_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--take-up", is_flag=True, help="Handle stored events of projects that are mapped by now.")
@config_option
def providers(config: Path | None, *, as_json: bool, take_up: bool) -> None:
    """Describe the other CIs."""
    run_work(_describe_providers(load_settings(config), as_json=as_json, take_up=take_up))


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def report(arguments: tuple[str, ...]) -> None:
    """Report to a bot that a job began or ended; `ootbot report --help` lists the options of actions/report."""
    command = [sys.executable, "-E", "-s", "-B", str(files.report_script()), *arguments]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - our own script


async def _backfill(settings: Settings, repo: str, branch: str, commits: int) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.jobs import branch_lists  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        began, last = context.clock.now(), None
        async for last in branch_lists.fill_branch(context, repo, branch, commits):
            left = (context.clock.now() - began) / 1000 / max(last.commits, 1) * (last.of - last.commits)
            waits = f"; the budget allows the next call in {text.duration(last.waits)}" if last.waits else ""
            rest = f", about {text.duration(left)} left" if last.commits and last.commits < last.of else ""
            click.echo(
                f"{last.commits} of {last.of} commits, {last.runs} runs, {last.jobs} jobs{rest}{waits}",
                err=True,
            )
        if last is None:
            click.echo("nothing to do: runs of all these commits are known", err=True)


async def _collect(
    settings: Settings, repo: str, run_id: int | None, since: int | None, *, wait: bool
) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.evidence.collect import backfill  # noqa: PLC0415 - the same
    from bot.jobs import collection  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        async with context.store.read() as tx:
            refused = await collection.run_refusal(tx, settings, repo, workflow=None)
        if refused and refused.startswith("CI="):
            click.echo(f"ootbot: {repo} is not collected: {refused}", err=True)
            sys.exit(1)
        collected = []
        if run_id is not None:
            collected.append(await backfill.collect_run(context, repo, run_id))
        else:
            async for run in backfill.collect_since(context, repo, context.clock.now() - (since or 0) * 1000):
                click.echo(f"run {run.run_id}: {run.jobs} jobs, {run.failed} failed", err=True)
                collected.append(run)
        jobs, failed = sum(run.jobs for run in collected), sum(run.failed for run in collected)
        click.echo(f"asked for {len(collected)} runs with {jobs} jobs, {failed} of them failed", err=True)
        if wait and collected:
            await _follow(context, [run.run_id for run in collected])


async def _follow(context: Context, run_ids: list[int]) -> None:
    """Print how much is done until all is, or nothing happens any more."""
    from bot.evidence.collect import fetches  # noqa: PLC0415 - the same

    last, idle = (-1, -1), 0.0
    while True:
        await context.clock.sleep(LOOK_EVERY)
        async with context.store.read() as tx:
            now = await fetches.count_unfinished(tx, run_ids)
        idle = 0.0 if now != last else idle + LOOK_EVERY
        if now != last and now[0]:
            click.echo(f"{now[1]} of {now[0]} done", err=True)
        last = now
        if idle >= QUIET_FOR and now[0] == now[1]:
            return
        if idle >= PATIENCE:
            click.echo(
                "no progress: is `ootbot serve` running? `ootbot ci status` shows what is left", err=True
            )
            sys.exit(1)


async def _status(settings: Settings, *, as_json: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the same
    from bot.evidence.collect import backfill  # noqa: PLC0415 - the same
    from bot.jobs import collection  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.read() as tx:
        progress = await backfill.collecting_progress(tx)
    collecting = collection.describe_scope(settings)
    shown = [
        {
            **standing,
            "oldest_wanted_at": standing["oldest_wanted_at"] and iso_time(standing["oldest_wanted_at"]),
        }
        for standing in progress
    ]
    if as_json:
        click.echo(json.dumps({"collecting": collecting, "repos": shown}, indent=2))
        return
    click.echo(f"collecting {collecting}")
    for standing in shown:
        states = standing["states"]
        assert isinstance(states, dict)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        oldest = (
            f"; the oldest wanted since {standing['oldest_wanted_at']}"
            if standing["oldest_wanted_at"]
            else ""
        )
        spent = (
            f"{standing['calls_last_hour']} calls and {standing['bytes_last_hour']:,} bytes in the last hour"
        )
        click.echo(f"{standing['repo']}: {counts}{oldest}; {spent}")
    if not shown:
        click.echo("nothing was collected yet")


async def _describe_providers(settings: Settings, *, as_json: bool, take_up: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.providers import (  # noqa: PLC0415
        deliveries,
        feature,
        tables,
    )

    guides = feature.make_guides(settings)
    async with make_context(settings) as context:
        await context.intake.show_arrived()
        taken = await deliveries.take_up_events(context) if take_up else None
        async with context.store.read() as tx:
            seen = await tables.read_newest_events(tx, limit=MOST_EVENTS)
            last, now = await tables.read_last_events(tx), tx.now
    if as_json:
        click.echo(json.dumps(_providers_as_json(guides, seen, taken)))
        return
    for form in guides:
        at = last.get(form.provider)
        _print_guide(form, "none yet" if at is None else f"{duration((now - at) / 1000)} ago")
    if guides and feature.is_unreachable(settings):
        click.echo("no other CI reaches these URLs: set PUBLIC_URL to the address of the bot from outside")
    if not guides:
        click.echo("no other CI is in the settings; docs/providers.md shows how to name one")
    if taken is not None:
        click.echo(f"{plural(taken, 'event')} of projects that are mapped by now: handled next")
    click.echo("last events:" if seen else "no event of another CI has come in yet")
    for row in seen:
        click.echo(
            f"  {iso_time(row['received_at'])}  {row['event']:<28} {row['state']:<8} {_describe_delivery(row)}"
        )


def _describe_delivery(row: DeliveryRow) -> str:
    """Return what an event was about, and why nothing follows from it."""
    if row["state"] == "foreign":
        return f"{(row['repo'] or '').partition(':')[2]} is mapped to no repository: see /admin, or ootbot doctor"
    about = row["repo"] or "no repository"
    return f"{about}: {row['error'].partition(': ')[2] or row['error']}" if row["error"] else about


def _print_guide(form: Guide, last: str) -> None:
    click.echo(f"{form.provider}: {form.where}")
    for name, value in [*form.fields, ("Last event", last)]:
        click.echo(f"  {name:<10}  {value}")
    for project, repo in form.projects.items():
        click.echo(f"  {project} -> {repo}")
    click.echo("")


def _providers_as_json(guides: list[Guide], seen: list[DeliveryRow], taken: int | None) -> dict[str, Any]:
    events = [
        {
            "event": row["event"],
            "repo": row["repo"],
            "state": row["state"],
            "received_at": iso_time(row["received_at"]),
            "error": row["error"],
        }
        for row in seen
    ]
    return {"providers": [dataclasses.asdict(form) for form in guides], "events": events, "taken_up": taken}
