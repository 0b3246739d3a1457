"""ootbot export: test results, jobs and what machines did, as one file for spreadsheets, pandas or DuckDB."""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from bot.console.common import config_option, features, load_settings, run_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bot.core.settings import Settings
    from bot.db.exports import Export, TableCopy

KINDS = {  # what a file holds -> the export it is made of
    "tests": "test_run",
    "failures": "failed_test_runs",
    "jobs": "workflow_job",
    "backend-jobs": "oot_workflow_job",
    "utilization": "util_metadata",
}
DAY = 86_400_000  # milliseconds
LOOKED = 1_000  # rows after which the time is looked at
SAID = 5.0  # seconds between two lines of progress
NULL = "\\N"  # of a file that is read again
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DUCK = {
    "Int64": "BIGINT",
    "Float64": "DOUBLE",
    "Bool": "BOOLEAN",
    "DateTime64": "TIMESTAMP",
}  # others: VARCHAR


@click.command("export")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.option(
    "--days", type=click.IntRange(1, 3660), default=30, show_default=True, help="How far to go back."
)
@click.option(
    "--format", "kind_of_file", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True
)
@click.option(
    "--repo", "repos", multiple=True, metavar="GLOB", help="Only repositories such as pytorch/*; repeatable."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; default: KIND.FORMAT. - is standard output.",
)
@config_option
def export_rows(
    *, kind: str, days: int, kind_of_file: str, repos: tuple[str, ...], output: Path | None, config: Path | None
) -> None:  # fmt: skip
    """Write what is stored of the last days into a file, a row a line; times are UTC.

    tests: all cases of trusted branches; failures: cases that failed in some attempt, of pull requests, too; jobs:
    GitHub's; backend-jobs: those that backends reported; utilization: what machines did. Private repositories are
    part of it. In CSV an apostrophe stands before a text that a spreadsheet would take for a formula. Parquet keeps
    texts and types as they are, and needs the extra `analytics`.

    \b
      ootbot export tests --days 30 --format parquet
      ootbot export jobs --days 7 --repo 'pytorch/*' --output - | head
      ootbot export utilization --output machines.csv
    """  # noqa: D301 - click's mark for lines to be kept as they are
    is_parquet = kind_of_file == "parquet"
    path = output or Path(f"{kind}.{kind_of_file}")
    if is_parquet and str(path) == "-":
        raise click.UsageError("Parquet is no text: name a file with --output")
    if is_parquet:
        _require_duckdb()
    settings = load_settings(config)
    count = _write(settings, KINDS[kind], path, days=days, repos=repos or ("*",), is_parquet=is_parquet)
    if str(path) != "-":
        click.echo(f"{path}: {count:,} rows", err=True)
    if not count:
        of_some = f" of {', '.join(repos)}" if repos else ""
        click.echo(f"nothing{of_some} in the last {days} days: --days goes further back", err=True)


def _require_duckdb() -> None:
    try:
        import duckdb  # noqa: F401, PLC0415 - only Parquet needs it
    except ImportError:
        raise click.UsageError(
            "Parquet needs duckdb: pip install 'ootbot[analytics]', or choose --format csv"
        ) from None


def _write(
    settings: Settings, name: str, path: Path, *, days: int, repos: tuple[str, ...], is_parquet: bool
) -> int:
    from bot.core.feature import load_each  # noqa: PLC0415 - other commands start without SQLAlchemy
    from bot.sinks.current_rows import copy_of_export  # noqa: PLC0415 - the same

    (chosen,) = [
        export for exports in load_each(features(), "exports") for export in exports if export.name == name
    ]
    copy = copy_of_export(chosen)
    since = round(time.time() * 1000) - days * DAY
    if is_parquet:
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "rows.csv"
            count = run_work(_write_csv(settings, chosen, lines, since=since, repos=repos, null=NULL))
            _write_parquet(copy, lines, path)
            return count
    return run_work(_write_csv(settings, chosen, path, since=since, repos=repos, null=""))


async def _write_csv(
    settings: Settings, chosen: Export, path: Path, *, since: int, repos: tuple[str, ...], null: str
) -> int:
    """Write rows to a file that has its name once it is whole; returns how many there are."""
    from bot.app import make_context  # noqa: PLC0415 - see above
    from bot.sinks.current_rows import (  # noqa: PLC0415
        copy_of_export,
        read_stored_rows,
    )

    columns = copy_of_export(chosen).table.columns
    shown = {name: _as_text(kind, null) for name, kind in columns.items()}
    count, said = 0, time.monotonic()
    with _opened(path) as file, _until_nobody_reads(file):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        async with make_context(settings, features=features()) as context:
            async for row in read_stored_rows(context, chosen, since=since, repos=repos):
                writer.writerow([show(row.get(name)) for name, show in shown.items()])
                count += 1
                if count % LOOKED == 0 and time.monotonic() > said + SAID:
                    said = time.monotonic()
                    click.echo(f"{count:,} rows", err=True)
    return count


@contextlib.contextmanager
def _until_nobody_reads(file: IO[str]) -> Iterator[None]:
    """End without an error once what reads the output has enough, as `head` has."""
    try:
        yield
        file.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), file.fileno())  # what is left in the buffer goes there


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if str(path) == "-":
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _as_text(kind: str, null: str) -> Callable[[Any], str]:
    """Return what shows values of a column; in a file that is read again texts stay as they are."""
    from bot.web.answers import csv_cell  # noqa: PLC0415 - see above

    is_time = "DateTime" in kind
    text: Callable[[str], str] = str if null else csv_cell

    def show(value: Any) -> str:
        if value is None:
            return null
        if is_time:
            return f"{EPOCH + timedelta(milliseconds=value):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        if isinstance(value, bool):
            return "true" if value else "false"
        return text(value) if isinstance(value, str) else msgspec.json.encode(value).decode()

    return show


def _write_parquet(copy: TableCopy, lines: Path, path: Path) -> None:
    import duckdb  # noqa: PLC0415 - only Parquet needs it

    types: Mapping[str, str] = {name: _duck_type(kind) for name, kind in copy.table.columns.items()}
    part = path.with_name(f"{path.name}.part")
    try:
        duckdb.read_csv(
            str(lines),
            header=True,
            columns=dict(types),
            na_values=NULL,
            quotechar='"',
            escapechar='"',
            delimiter=",",
            auto_detect=False,
            strict_mode=True,
            parallel=False,
            max_line_size=64 * 1024 * 1024,
        ).write_parquet(str(part), compression="zstd")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _duck_type(kind: str) -> str:
    inner = kind
    for wrapper in ("LowCardinality(", "Nullable("):
        inner = inner.removeprefix(wrapper)
    return next((duck for ours, duck in DUCK.items() if inner.startswith(ours)), "VARCHAR")
