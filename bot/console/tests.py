"""ootbot tests: say what we make of reports of tests, and what is known of a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.console.test_history import history, reset
from bot.core.escaping import one_line, shorten

if TYPE_CHECKING:
    from bot.ci.test_results.parse.cases import Case
    from bot.ci.test_results.parse.reports import Results

SHOWN = 20  # cases of a kind
LINE = 200  # characters


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
    from bot.ci.test_results.parse import reports  # noqa: PLC0415 - other commands start without it

    results = reports.read_reports(paths)
    if as_json:
        click.echo(json.dumps(_as_json(results)))
    else:
        _print(results)
    sys.exit(0 if results.read else 1)


def _as_json(results: Results) -> dict[str, object]:
    return {
        "counts": results.counts(),
        "cases": [_case_as_json(case) for case in results.cases()],
        "unreadable": [one._asdict() for one in results.unreadable],
        "no_reports": [one._asdict() for one in results.no_reports],
        "notes": [one._asdict() for one in results.notes],
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


def _print(results: Results) -> None:
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
        for case in cases[:SHOWN]:
            click.echo(_line(case))
        if len(cases) > SHOWN:
            click.echo(f"  and {len(cases) - SHOWN:,} more")
    if results.too_long:
        click.echo(f"\ntimes left out, as they are over seven days: {results.too_long:,}")
    _print_unreadable(results)


def _print_unreadable(results: Results) -> None:
    if results.unreadable:
        click.echo(
            f"\n{len(results.unreadable):,} of {results.read + len(results.unreadable):,} reports unreadable:"
        )
    for one in results.unreadable:
        click.echo(f"  {shorten(one_line(one.member), LINE)}: {shorten(one_line(one.reason), LINE)}")
    for title, files in (("no reports of tests", results.no_reports), ("notes", results.notes)):
        if files:
            click.echo(f"\n{title}:")
        for one in files[:SHOWN]:
            click.echo(f"  {shorten(one_line(one.member), LINE)}: {shorten(one_line(one.reason), LINE)}")
    if not results.read and not results.unreadable:
        click.echo("\nno report there: reports are files that end in .xml or .jsonl")


def _line(case: Case) -> str:
    where = " ".join(part for part in (case.place.file, case.place.suite, case.name) if part)
    tried = f" ({case.failed_attempts} of {len(case.attempts)} attempts failed)" if case.attempts[1:] else ""
    message = f": {shorten(one_line(case.message), LINE)}" if case.message else ""
    return f"  {shorten(one_line(where), LINE)}{tried}{message}"
