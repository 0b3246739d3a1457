"""ootbot logs: say why a job failed, and test rules for logs. With files both work without settings or network."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from bot.console.common import config_option, load_settings, run_work
from bot.core.errors import OotbotError

if TYPE_CHECKING:
    from bot.ci.logs.job_log import JobAddress
    from bot.ci.logs.parse.blocks import Source
    from bot.ci.logs.parse.classify import Classified
    from bot.ci.logs.parse.rules import Ruleset
    from bot.core.settings import Settings

SHOWN = ("rank", "rule", "kind", "line", "line_num", "captures", "context")

rules_option = click.option(
    "--rules",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of rules instead of those that come with the program; may be repeated, the first has priority.",
)


def _file_or_job(context: click.Context, parameter: click.Parameter, value: str) -> IO[bytes] | JobAddress:
    """Return the file opened, or the job of an address."""
    if not value.startswith(("https://", "http://")):
        opened: IO[bytes] = click.File("rb").convert(value, parameter, context)
        return opened
    from bot.ci.logs import job_log  # noqa: PLC0415 - files are explained without SQLAlchemy and aiohttp

    if (job := job_log.parse_address(value)) is None:
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
    from bot.ci.logs.parse import classify  # noqa: PLC0415
    from bot.ci.logs.parse.blocks import PlainLog  # noqa: PLC0415 - other commands start without RE2

    log: Source
    if isinstance(source, tuple):
        log, in_force = run_work(_of_job(load_settings(config), source))
        ruleset = _ruleset(files) if files else in_force
    else:
        ruleset = _ruleset(files)
        log = PlainLog(source if source.seekable() else io.BytesIO(source.read()))
    found, last = classify.explain(log, ruleset)
    hits = [(hit.rule, hit.number) for hit in last]
    if as_json:
        click.echo(
            json.dumps(
                _as_json(found) | {"rules": [{"rule": rule.name, "line_num": line} for rule, line in hits]}
            )
        )
        return
    _print(found)
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
    from bot.ci.logs import fixtures  # noqa: PLC0415

    ruleset = _ruleset(files)
    passed = failed = 0
    for path in sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith(".")):
        content = path.read_bytes()
        try:
            rendered = fixtures.rendered(content, ruleset)
        except OotbotError as error:
            click.echo(f"{path.name}: {error}")
            failed += 1
            continue
        if rendered != content and bless:
            path.write_bytes(rendered)
            click.echo(f"blessed {path.name}")
        elif rendered != content:
            click.echo(f"{path.name}:")
            click.echo(f"  marked: {fixtures.marked_line(content)}")
            click.echo(f"  found:  {fixtures.marked_line(rendered)}")
            failed += 1
            continue
        passed += 1
    click.echo(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


async def _of_job(settings: Settings, job: JobAddress) -> tuple[Source, Ruleset]:
    from bot.app import make_context  # noqa: PLC0415 - files are explained without aiohttp
    from bot.ci.logs import job_log  # noqa: PLC0415 - the same

    async with make_context(settings) as context:
        return await job_log.read_job_log(context, job)


def _ruleset(files: tuple[Path, ...]) -> Ruleset:
    """Return the rules of the files, else those that come with the program; exits with 2 if one is wrong."""
    from bot.ci.logs.parse import rules  # noqa: PLC0415

    try:
        return (
            rules.merge_rulesets([rules.read_rules(path) for path in files])
            if files
            else rules.shipped_rules()
        )
    except rules.RulesetError as error:
        for problem in error.problems:
            click.echo(f"ootbot: {problem}", err=True)
        sys.exit(2)


def _as_json(found: Classified) -> dict[str, object]:
    return {
        "lines": found.lines,
        "verdicts": [
            {name: value for name, value in verdict.items() if name in SHOWN} for verdict in found.verdicts
        ],
        "first_error": found.first_error,
    }


def _print(found: Classified) -> None:
    click.echo(f"{found.lines:,} lines")
    if not found.verdicts:
        click.echo("no rule matches")
    for verdict in found.verdicts:
        title = "verdict" if verdict["rank"] == 0 else f"also {verdict['rank']}"
        click.echo(f"\n{title}: {verdict['rule']} ({verdict['kind']}), line {verdict['line_num']:,}")
        click.echo(f"  {verdict['line']}")
        click.echo(f"  captured: {', '.join(verdict['captures'])}")
        for line in verdict["context"]:
            click.echo(f"  above: {line}")
    if first := found.first_error:
        click.echo(f"\nfirst build error: line {first['line_num']:,}\n  {first['line']}")
