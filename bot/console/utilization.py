"""ootbot utilization: say what a machine did while a job ran. Works without settings or network."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from bot.core.escaping import one_line

if TYPE_CHECKING:
    from bot.ci.utilization.parse.overlap import Overlap
    from bot.ci.utilization.parse.segments import Segment
    from bot.ci.utilization.parse.summary import Peak, Summary, Times
    from bot.ci.utilization.parse.usage_log import UsageLog

SHOWN = 20  # lines of each list


class Found(NamedTuple):
    """What there is to say about a log."""

    pieces: list[Segment]
    by_series: dict[str, Summary]
    times: Times
    peak: Peak | None
    together: Overlap


@click.group()
def utilization() -> None:
    """Say what a machine did while a job ran, by the job's usage log."""


@utilization.command("read")
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option(
    "--gap",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="A command that was not seen for longer than this ended and began again.",
)
@click.option(
    "--export",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the files metadata and time_series, as other stores get them, into DIR.",
)
@click.option("--force", is_flag=True, help="Read on if the metadata are broken or of another version.")
def read_file(file: IO[bytes], *, as_json: bool, gap: int, export: Path | None, force: bool) -> None:
    """Say what a usage log FILE (- reads standard input) holds: what ran when, how busy the machine was, what it idled.

    Exit code 0: the log holds records; 1: it holds none, is of an older model or is refused; 2: it cannot be read or
    the export cannot be written.

    \b
      ootbot utilization read usage_log.txt
      ootbot utilization read usage_log.txt --json --gap 10
      ootbot utilization read usage_log.txt --export documents
      unzip -p usage-log.zip usage_log.txt | ootbot utilization read -
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.ci.utilization.parse import overlap, segments, summary, usage_log  # noqa: PLC0415 - others start without RE2

    file = file if file.seekable() else io.BytesIO(file.read())
    try:
        log = usage_log.read_log(file, force=force)
        pieces = segments.find_segments(log, gap)
        if export and log.outcome["status"] in {"ok", "no_records"}:
            file.seek(0)
            _export(export, file, log, pieces)
    except OSError as error:
        click.echo(f"ootbot: {error}", err=True)
        sys.exit(2)
    found = Found(
        pieces,
        summary.summaries(log),
        summary.times(log),
        summary.peak(log),
        overlap.find_overlap(log, pieces),
    )
    if as_json:
        click.echo(json.dumps(_as_json(log, found)))
    else:
        _print(log, found)
    sys.exit(0 if log.charted else 1)


def _export(folder: Path, file: IO[bytes], log: UsageLog, pieces: list[Segment]) -> None:
    from bot.ci.utilization import exported_documents  # noqa: PLC0415 - with the rest

    now = int(time.time())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(exported_documents.metadata_line(log, pieces, created_at=now) + "\n")
    with (folder / "time_series").open("w") as written:
        for line in exported_documents.record_lines(file, log, created_at=now):
            written.write(line + "\n")


def _as_json(log: UsageLog, found: Found) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - with the rest

    return {
        **log.outcome,
        "metadata": msgspec.to_builtins(log.metadata),
        "records": log.columns.added,
        "error_records": log.errors,
        "segments": msgspec.to_builtins(found.pieces),
        "series": list(log.series),
        "summary": msgspec.to_builtins(found.by_series),
        "times": {**found.times.durations, **_others(found.times)},
        "peak_memory": msgspec.to_builtins(found.peak),
        "overlap": msgspec.to_builtins(found.together),
    }


def _others(times: Times) -> dict[str, Any]:
    """Return what else than durations is known of a log's time."""
    names = ("cpu_avg", "memory_avg", "gpus", "idle_share")
    return {name: getattr(times, name) for name in names}


def _print(log: UsageLog, found: Found) -> None:
    outcome, durations = log.outcome, found.times.durations
    click.echo(f"{outcome['status']}{': ' if outcome['reason'] else ''}{outcome['reason']}")
    if log.metadata:
        click.echo(f"job: {one_line(log.metadata.workflow_name)} / {one_line(log.metadata.job_name)}")
    click.echo(f"{log.columns.added:,} records, {log.errors:,} error records")
    if outcome["flags"]:
        click.echo(f"noticed: {', '.join(outcome['flags'])}")
    if not log.charted:
        return
    times, peak = found.times, found.peak
    click.echo(f"{durations['observed_s']:,.0f} s observed, {durations['no_data_s']:,.0f} s without data")
    if times.idle_share is not None:
        share = f"{times.idle_share:.0%} of what there was"
        click.echo(f"accelerators: {times.gpus}, idle for {durations['idle_gpu_s']:,.0f} s, {share}")
    if peak:
        click.echo(f"most memory: {peak.percent:g} % at {_clock(peak.at)}" + ", near its end" * peak.oom_risk)
        for command in peak.commands[:SHOWN]:
            click.echo(f"  ran then: {one_line(command)}")
    click.echo(f"\n{'avg':>10} {'p50':>10} {'p90':>10} {'max':>10}  series")
    for name, one in found.by_series.items():
        click.echo(
            f"{one.avg:>10,.1f} {one.p50:>10,.1f} {one.p90:>10,.1f} {one.max:>10,.1f}  {one_line(name)}"
        )
    _print_commands(found.pieces, found.together)


def _print_commands(pieces: list[Segment], together: Overlap) -> None:
    from bot.ci.utilization.parse.segments import in_background, shown_name  # noqa: PLC0415 - with the rest

    shown = sorted((one for one in pieces if not in_background(one.name)), key=lambda one: -one.length)
    if shown:
        click.echo(f"\nlongest of {len(shown):,} segments, at most {together.most_at_once:,} at once:")
    for one in shown[:SHOWN]:
        click.echo(f"{one.length:>10,} s  {_clock(one.start_at)}  {one_line(shown_name(one.name))}")
    if together.pairs:
        click.echo("\nran at the same time:")
    for pair in together.pairs[:SHOWN]:
        click.echo(
            f"{pair.seconds:>10,} s  {one_line(shown_name(pair.first))}  and  {one_line(shown_name(pair.second))}"
        )


def _clock(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))
