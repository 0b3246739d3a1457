"""ootbot tests: say what we make of reports of tests, what is known of a test, and reset its state."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core import text
from bot.core.escaping import one_line, shorten
from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.evidence.tests.parse.cases import Case
    from bot.evidence.tests.parse.reports import Results
    from bot.evidence.tests.states import NamedTest

HISTORY_DAYS = 30
LINE_LENGTH = 200  # characters
MOST_DAYS = 400
DAY = 86_400_000
MOST_SHOWN = 20  # cases of a kind


@click.command()
@click.argument("repo")
@click.argument("name")
@click.option(
    "--days", type=click.IntRange(1, MOST_DAYS), default=HISTORY_DAYS, show_default=True, help="How far back."
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
    from bot.evidence.tests import states  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.read() as tx:
        matches = await states.with_history(tx, await states.find_tests_by_name(tx, repo, name), days=days)
    if as_json:
        click.echo(json.dumps({"tests": [_history_as_json(test) for test in matches]}))
    else:
        for test in matches:
            _print_history(test)
    if not matches:
        click.echo(f"no test of that name is known in {repo}", err=True)
        sys.exit(1)


async def _reset(settings: Settings, repo: str, name: str, by: str) -> None:
    from bot.app import make_context  # noqa: PLC0415 - the other commands start without aiohttp and SQLAlchemy
    from bot.evidence.tests import states  # noqa: PLC0415 - the same

    async with make_context(settings) as context, context.store.transaction() as tx:
        matches = await states.find_tests_by_name(tx, repo, name)
        if len(matches) == 1:
            (test,) = matches
            environments = await states.reset_test(tx, test["repository_id"], test["id"], by=by)
    if len(matches) != 1:
        many = f"{len(matches)} tests have that name: write file::suite::name"
        click.echo(many if matches else f"no test of that name is known in {repo}", err=True)
        sys.exit(1)
    click.echo(
        f"{name} was flaky or broken in {text.plural(environments, 'environment')}, and is healthy now"
    )


def _history_as_json(test: NamedTest) -> dict[str, Any]:
    row = test.row
    return {
        "file": row["file"],
        "suite": row["suite"],
        "name": row["name"],
        "test": row["digest"].hex()[:16],
        "first_at": iso_time(row["first_at"]),
        "trusted_since": iso_time(row["trusted_first_at"]) if row["trusted_first_at"] else None,
        "states": [
            {"env_group": state["env_group"], "state": state["state"], "since": iso_time(state["since"])}
            for state in test.states
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
            for day, group, counts in _lines(test)
        ],
    }


def _print_history(test: NamedTest) -> None:
    place = " ".join(part for part in (test.row["file"], test.row["suite"], test.row["name"]) if part)
    click.echo(shorten(one_line(place), LINE_LENGTH))
    for state in test.states:
        click.echo(f"  {state['state']} since {iso_time(state['since'])} in {one_line(state['env_group'])}")
    for day, group, counts in _lines(test):
        parts = [f"{counts.runs:,} runs", f"{counts.passed:,} passed"]
        failed = counts.failed + counts.erred
        extra = (("failed", failed), ("flaky", counts.flaky), ("skipped", counts.skips))
        parts += [f"{count:,} {word}" for word, count in extra if count]
        average = counts.time_ms / counts.runs / 1000
        click.echo(f"  {_date(day)}  {shorten(one_line(group), 40):<40}  {', '.join(parts)}, {average:.2f} s")
    if not test.days:
        click.echo("  no trusted run had it in this time")


def _lines(test: NamedTest) -> list[tuple[int, str, Any]]:
    return [
        (day, group, test.days[day][group])
        for day in sorted(test.days, reverse=True)
        for group in sorted(test.days[day])
    ]


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY / 1000, UTC):%Y-%m-%d}"


@click.group()
def tests() -> None:
    """Say what reports of tests say, case by case."""


tests.add_command(history)
tests.add_command(reset)


@tests.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def read(paths: tuple[Path, ...], *, as_json: bool) -> None:
    """Read reports of one job: JUnit XML, run reports (.jsonl), folders and ZIP archives of both.

    Exits with 0 when reports were read, whatever became of the tests; with 1 when none could be read.

    \b
      ootbot tests read build/test-results.xml
      ootbot tests read test-reports/ test-reports.zip
      ootbot tests read junit.zip --json | jq .counts
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.evidence.tests.parse import reports  # noqa: PLC0415 - other commands start without it

    results = reports.read_reports(paths)
    if as_json:
        click.echo(json.dumps(_results_as_json(results)))
    else:
        _print_results(results)
    sys.exit(0 if results.read else 1)


def _results_as_json(results: Results) -> dict[str, object]:
    return {
        "counts": results.counts(),
        "cases": [_case_as_json(case) for case in results.cases()],
        "unreadable": [file._asdict() for file in results.unreadable],
        "no_reports": [file._asdict() for file in results.no_reports],
        "notes": [file._asdict() for file in results.notes],
        "times_left_out": results.too_long,
    }


def _case_as_json(case: Case) -> dict[str, object]:
    return {
        "file": case.place.file,
        "suite": case.place.suite,
        "name": case.name,
        "outcome": case.outcome.name.lower(),
        "attempts": len(case.attempts),
        "failed_attempts": case.failed_attempts,
        "repeats": case.repeats,
        "time_ms": case.time_ms,
        "message": case.message,
    }


def _print_results(results: Results) -> None:
    counts = results.counts()
    click.echo(", ".join(f"{count:,} {word}" for word, count in counts.items()))
    failed, flaky = [], []
    for case in results.cases():
        if case.outcome.name in {"FAILED", "ERROR"}:
            failed.append(case)
        elif case.is_flaky:
            flaky.append(case)
    for title, cases in (("failed", failed), ("flaky", flaky)):
        if cases:
            click.echo(f"\n{title}:")
        for case in cases[:MOST_SHOWN]:
            click.echo(_line(case))
        if len(cases) > MOST_SHOWN:
            click.echo(f"  and {len(cases) - MOST_SHOWN:,} more")
    if results.too_long:
        click.echo(f"\ntimes left out, as they are over seven days: {results.too_long:,}")
    _print_unreadable(results)


def _print_unreadable(results: Results) -> None:
    if results.unreadable:
        click.echo(
            f"\n{len(results.unreadable):,} of {results.read + len(results.unreadable):,} reports unreadable:"
        )
    for file in results.unreadable:
        click.echo(
            f"  {shorten(one_line(file.member), LINE_LENGTH)}: {shorten(one_line(file.reason), LINE_LENGTH)}"
        )
    for title, files in (("no reports of tests", results.no_reports), ("notes", results.notes)):
        if files:
            click.echo(f"\n{title}:")
        for file in files[:MOST_SHOWN]:
            click.echo(
                f"  {shorten(one_line(file.member), LINE_LENGTH)}: {shorten(one_line(file.reason), LINE_LENGTH)}"
            )
    if not results.read and not results.unreadable:
        click.echo("\nno report there: reports are files that end in .xml or .jsonl")


def _line(case: Case) -> str:
    where = " ".join(part for part in (case.place.file, case.place.suite, case.name) if part)
    tried = f" ({case.failed_attempts} of {len(case.attempts)} attempts failed)" if case.attempts[1:] else ""
    message = f": {shorten(one_line(case.message), LINE_LENGTH)}" if case.message else ""
    return f"  {shorten(one_line(where), LINE_LENGTH)}{tried}{message}"
