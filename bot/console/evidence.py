"""ootbot logs and utilization: why a job failed, and what its machine did. With files both work without settings."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core.errors import OotbotError
from bot.core.escaping import one_line

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.evidence.logs.parse.classify import Classification
    from bot.evidence.logs.parse.rulesets import Ruleset
    from bot.evidence.logs.parse.stored_log import LogSource
    from bot.evidence.logs.search import JobAddress
    from bot.evidence.usage.parse.segments import Overlap, Segment
    from bot.evidence.usage.parse.summary import MemoryPeak, Summary, Times
    from bot.evidence.usage.parse.usage_log import UsageLog

SHOWN_FIELDS = ("rank", "rule", "kind", "line", "line_num", "captures", "context")

rules_option = click.option(
    "--rules",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of rules instead of those that come with the program; may be repeated, the first has priority.",
)
MOST_SHOWN = 20  # lines of each list


class UsageFindings(NamedTuple):
    """What a usage log says."""

    pieces: list[Segment]
    by_series: dict[str, Summary]
    times: Times
    peak: MemoryPeak | None
    together: Overlap


def _file_or_job(context: click.Context, parameter: click.Parameter, value: str) -> IO[bytes] | JobAddress:
    """Return the file opened, or the job of an address."""
    if not value.startswith(("https://", "http://")):
        opened: IO[bytes] = click.File("rb").convert(value, parameter, context)
        return opened
    from bot.evidence.logs import search  # noqa: PLC0415 - files are explained without SQLAlchemy and aiohttp

    if (job := search.parse_address(value)) is None:
        problem = "this is not the address of a job's page: .../owner/repo/actions/runs/1/job/123"
        raise click.BadParameter(problem, context, parameter)
    return job


@click.group()
def logs() -> None:
    """Say why a job failed, by the rules for its log, and test such rules."""


@logs.command()
@click.argument("source", metavar="FILE|URL", callback=_file_or_job)
@rules_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option
def explain(
    source: IO[bytes] | JobAddress, files: tuple[Path, ...], config: Path | None, *, as_json: bool
) -> None:
    """Say which lines of a log FILE (- reads standard input) tell why its job failed, and which rule says so.

    The URL of a job's page stands for its log, stored or read through the App, and for the rules in force there.

    \b
      gh api repos/example-org/project/actions/jobs/123/logs > job.log
      ootbot logs explain job.log
      ootbot logs explain job.log --rules my_rules.toml --json
      ootbot logs explain https://github.com/example-org/project/actions/runs/1/job/123
    """  # noqa: D301 - click's mark for lines to be kept as they are
    from bot.evidence.logs.parse import classify  # noqa: PLC0415
    from bot.evidence.logs.parse.stored_log import PlainLog  # noqa: PLC0415 - other commands start without RE2

    log: LogSource
    if isinstance(source, tuple):
        log, in_force = run_work(_of_job(load_settings(config), source))
        ruleset = _ruleset(files) if files else in_force
    else:
        ruleset = _ruleset(files)
        log = PlainLog(source if source.seekable() else io.BytesIO(source.read()))
    classified, last = classify.explain(log, ruleset)
    hits = [(hit.rule, hit.number) for hit in last]
    if as_json:
        click.echo(
            json.dumps(
                _classification_as_json(classified)
                | {"rules": [{"rule": rule.name, "line_num": line} for rule, line in hits]}
            )
        )
        return
    _print_classification(classified)
    if hits:
        click.echo("\nthe last line of every rule that matches, highest priority first:")
        for rule, line in hits:
            click.echo(f"  {line:>9,}  {rule.name} ({rule.kind})")


@logs.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@rules_option
@click.option("--bless", is_flag=True, help="Write the marks where the rules put them now.")
def test(folder: Path, files: tuple[Path, ...], *, bless: bool) -> None:
    """Check that rules find the marked line in every fixture of DIR; exit 1 if one does not.

    A fixture is a fragment of a log. The line to be found begins with `#=MATCH=# ` and has ‹ › around what is
    captured; a fixture without such a line expects that nothing is found.

    \b
      ootbot logs test fixtures --rules my_rules.toml
      ootbot logs test fixtures --rules my_rules.toml --bless
    """  # noqa: D301, RUF002 - click's mark for lines to be kept as they are; the marks of fixtures
    from bot.evidence.logs.parse import classify  # noqa: PLC0415

    ruleset = _ruleset(files)
    passed = failed = 0
    for path in sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")):
        content = path.read_bytes()
        try:
            rendered = classify.render_fixture(content, ruleset)
        except OotbotError as error:
            click.echo(f"{path.name}: {error}")
            failed += 1
            continue
        if rendered != content and bless:
            path.write_bytes(rendered)
            click.echo(f"blessed {path.name}")
        elif rendered != content:
            click.echo(f"{path.name}:")
            click.echo(f"  marked: {classify.marked_line(content)}")
            click.echo(f"  found:  {classify.marked_line(rendered)}")
            failed += 1
            continue
        passed += 1
    click.echo(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


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
    from bot.evidence.usage.parse import segments, summary, usage_log  # noqa: PLC0415

    file = file if file.seekable() else io.BytesIO(file.read())
    try:
        log = usage_log.read_log(file, force=force)
        pieces = segments.find_segments(log, gap)
        if export and log.outcome["status"] in {"ok", "no_records"}:
            file.seek(0)
            _export_usage(export, file, log, pieces)
    except OSError as error:
        click.echo(f"ootbot: {error}", err=True)
        sys.exit(2)
    findings = UsageFindings(
        pieces,
        summary.summarize_log(log),
        summary.measure_times(log),
        summary.find_peak(log),
        segments.find_overlap(log, pieces),
    )
    if as_json:
        click.echo(json.dumps(_usage_as_json(log, findings)))
    else:
        _print_usage(log, findings)
    sys.exit(0 if log.charted else 1)


async def _of_job(settings: Settings, job: JobAddress) -> tuple[LogSource, Ruleset]:
    from bot.app import make_context  # noqa: PLC0415 - files are explained without aiohttp
    from bot.evidence.logs import search  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        return await search.read_job_log(context, job)


def _ruleset(files: tuple[Path, ...]) -> Ruleset:
    """Return the rules of the files, else those that come with the program; exits with 2 if one is wrong."""
    from bot.evidence.logs.parse import rulesets  # noqa: PLC0415

    try:
        return (
            rulesets.merge_rulesets([rulesets.read_rules(path) for path in files])
            if files
            else rulesets.shipped_rules()
        )
    except rulesets.RulesetError as error:
        for problem in error.problems:
            click.echo(f"ootbot: {problem}", err=True)
        sys.exit(2)


def _classification_as_json(classified: Classification) -> dict[str, object]:
    return {
        "lines": classified.lines,
        "verdicts": [
            {name: value for name, value in verdict.items() if name in SHOWN_FIELDS}
            for verdict in classified.verdicts
        ],
        "first_error": classified.first_error,
    }


def _print_classification(classified: Classification) -> None:
    click.echo(f"{classified.lines:,} lines")
    if not classified.verdicts:
        click.echo("no rule matches")
    for verdict in classified.verdicts:
        title = "verdict" if verdict["rank"] == 0 else f"also {verdict['rank']}"
        click.echo(f"\n{title}: {verdict['rule']} ({verdict['kind']}), line {verdict['line_num']:,}")
        click.echo(f"  {verdict['line']}")
        click.echo(f"  captured: {', '.join(verdict['captures'])}")
        for line in verdict["context"]:
            click.echo(f"  above: {line}")
    if first := classified.first_error:
        click.echo(f"\nfirst build error: line {first['line_num']:,}\n  {first['line']}")


def _export_usage(folder: Path, file: IO[bytes], log: UsageLog, pieces: list[Segment]) -> None:
    from bot.evidence.usage.parse import usage_log  # noqa: PLC0415 - with the rest

    now = int(time.time())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(usage_log.metadata_line(log, pieces, created_at=now) + "\n")
    with (folder / "time_series").open("w") as written:
        for line in usage_log.record_lines(file, log, created_at=now):
            written.write(line + "\n")


def _usage_as_json(log: UsageLog, findings: UsageFindings) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - with the rest

    return {
        **log.outcome,
        "metadata": msgspec.to_builtins(log.metadata),
        "records": log.columns.added,
        "error_records": log.errors,
        "segments": msgspec.to_builtins(findings.pieces),
        "series": list(log.series),
        "summary": msgspec.to_builtins(findings.by_series),
        "times": {**findings.times.durations, **_other_times(findings.times)},
        "peak_memory": msgspec.to_builtins(findings.peak),
        "overlap": msgspec.to_builtins(findings.together),
    }


def _other_times(times: Times) -> dict[str, Any]:
    """Return what is known of a log's times beside durations."""
    names = ("cpu_avg", "memory_avg", "gpus", "idle_share")
    return {name: getattr(times, name) for name in names}


def _print_usage(log: UsageLog, findings: UsageFindings) -> None:
    outcome, durations = log.outcome, findings.times.durations
    click.echo(f"{outcome['status']}{': ' if outcome['reason'] else ''}{outcome['reason']}")
    if log.metadata:
        click.echo(f"job: {one_line(log.metadata.workflow_name)} / {one_line(log.metadata.job_name)}")
    click.echo(f"{log.columns.added:,} records, {log.errors:,} error records")
    if outcome["flags"]:
        click.echo(f"noticed: {', '.join(outcome['flags'])}")
    if not log.charted:
        return
    times, peak = findings.times, findings.peak
    click.echo(f"{durations['observed_s']:,.0f} s observed, {durations['no_data_s']:,.0f} s without data")
    if times.idle_share is not None:
        share = f"{times.idle_share:.0%} of what there was"
        click.echo(f"accelerators: {times.gpus}, idle for {durations['idle_gpu_s']:,.0f} s, {share}")
    if peak:
        click.echo(
            f"most memory: {peak.percent:g} % at {_time_of_day(peak.at)}" + ", near its end" * peak.oom_risk
        )
        for command in peak.commands[:MOST_SHOWN]:
            click.echo(f"  ran then: {one_line(command)}")
    click.echo(f"\n{'avg':>10} {'p50':>10} {'p90':>10} {'max':>10}  series")
    for name, series in findings.by_series.items():
        click.echo(
            f"{series.avg:>10,.1f} {series.p50:>10,.1f} {series.p90:>10,.1f} {series.max:>10,.1f}  {one_line(name)}"
        )
    _print_commands(findings.pieces, findings.together)


def _print_commands(pieces: list[Segment], together: Overlap) -> None:
    from bot.evidence.usage.parse.segments import (  # noqa: PLC0415
        in_background,
        shown_name,
    )

    shown = sorted(
        (piece for piece in pieces if not in_background(piece.name)), key=lambda piece: -piece.length
    )
    if shown:
        click.echo(f"\nlongest of {len(shown):,} segments, at most {together.most_at_once:,} at once:")
    for piece in shown[:MOST_SHOWN]:
        click.echo(
            f"{piece.length:>10,} s  {_time_of_day(piece.start_at)}  {one_line(shown_name(piece.name))}"
        )
    if together.pairs:
        click.echo("\nran at the same time:")
    for pair in together.pairs[:MOST_SHOWN]:
        click.echo(
            f"{pair.seconds:>10,} s  {one_line(shown_name(pair.first))}  and  {one_line(shown_name(pair.second))}"
        )


def _time_of_day(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))
