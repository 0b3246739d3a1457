"""ootbot tests history and reset: what the bot knows of a test, and resetting its state."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core import text
from bot.core.escaping import one_line, shorten
from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from pathlib import Path

    from bot.ci.test_results.store.named_tests import NamedTest
    from bot.core.settings import Settings

DAYS = 30
LINE = 200  # characters
MOST_DAYS = 400
DAY = 86_400_000


@click.command()
@click.argument("repo")
@click.argument("name")
@click.option(
    "--days", type=click.IntRange(1, MOST_DAYS), default=DAYS, show_default=True, help="How far back."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def history(repo: str, name: str, days: int, config: Path | None, *, as_json: bool) -> None:
    """Show what trusted runs of REPO (owner/name) said of the test NAME, by day and environment.

    NAME may be a test's name, suite::name or file::suite::name. Exits with 1 where no such test is known.

    \b
      ootbot tests history owner/repo test_add
      ootbot tests history owner/repo test_ops.py::TestOps::test_add --days 7
    """  # noqa: D301 - click's mark for lines to be kept as they are
    run_work(_history(load_settings(config), repo, name, days, as_json=as_json))


@click.command()
@click.argument("repo")
@click.argument("name")
@click.option("--by", required=True, help="Who resets it; shown with the test.")
@config_option
def reset(repo: str, name: str, by: str, config: Path | None) -> None:
    """Reset the state of the test NAME of REPO (owner/name): results before now no longer make it flaky or broken.

    \b
      ootbot tests reset owner/repo TestOps::test_add --by octocat
    """  # noqa: D301 - click's mark for lines to be kept as they are
    run_work(_reset(load_settings(config), repo, name, by))


async def _history(settings: Settings, repo: str, name: str, days: int, *, as_json: bool) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ci.test_results.store import named_tests  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.read() as tx:
        found = await named_tests.with_history(tx, await named_tests.find_tests(tx, repo, name), days=days)
    if as_json:
        click.echo(json.dumps({"tests": [_as_json(one) for one in found]}))
    else:
        for one in found:
            _print(one)
    if not found:
        click.echo(f"no test of that name is known in {repo}", err=True)
        sys.exit(1)


async def _reset(settings: Settings, repo: str, name: str, by: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.ci.test_results.store import evaluate_states, named_tests  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.transaction() as tx:
        found = await named_tests.find_tests(tx, repo, name)
        if len(found) == 1:
            (one,) = found
            environments = await evaluate_states.reset_test(tx, one["repository_id"], one["id"], by=by)
    if len(found) != 1:
        many = f"{len(found)} tests have that name: write file::suite::name"
        click.echo(many if found else f"no test of that name is known in {repo}", err=True)
        sys.exit(1)
    click.echo(
        f"{name} was flaky or broken in {text.plural(environments, 'environment')}, and is healthy now"
    )


def _as_json(one: NamedTest) -> dict[str, Any]:
    row = one.row
    return {
        "file": row["file"],
        "suite": row["suite"],
        "name": row["name"],
        "test": row["digest"].hex()[:16],
        "first_at": iso_time(row["first_at"]),
        "trusted_since": iso_time(row["trusted_first_at"]) if row["trusted_first_at"] else None,
        "states": [
            {"env_group": state["env_group"], "state": state["state"], "since": iso_time(state["since"])}
            for state in one.states
        ],
        "days": [
            {
                "day": _date(day),
                "env_group": group,
                "runs": counts.runs,
                "passed": counts.passed,
                "failed": counts.failed + counts.erred,
                "flaky": counts.flaky,
                "skipped": counts.skips,
                "time_ms": counts.time_ms,
            }
            for day, group, counts in _lines(one)
        ],
    }


def _print(one: NamedTest) -> None:
    place = " ".join(part for part in (one.row["file"], one.row["suite"], one.row["name"]) if part)
    click.echo(shorten(one_line(place), LINE))
    for state in one.states:
        click.echo(f"  {state['state']} since {iso_time(state['since'])} in {one_line(state['env_group'])}")
    for day, group, counts in _lines(one):
        parts = [f"{counts.runs:,} runs", f"{counts.passed:,} passed"]
        failed = counts.failed + counts.erred
        extra = (("failed", failed), ("flaky", counts.flaky), ("skipped", counts.skips))
        parts += [f"{count:,} {word}" for word, count in extra if count]
        average = counts.time_ms / counts.runs / 1000
        click.echo(f"  {_date(day)}  {shorten(one_line(group), 40):<40}  {', '.join(parts)}, {average:.2f} s")
    if not one.days:
        click.echo("  no trusted run had it in this time")


def _lines(one: NamedTest) -> list[tuple[int, str, Any]]:
    return [
        (day, group, one.days[day][group]) for day in sorted(one.days, reverse=True) for group in sorted(one.days[day])
    ]  # fmt: skip


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY / 1000, UTC):%Y-%m-%d}"
