"""Run reports, schema 0.1: JSON lines, one for the environment, then one for each attempt of each case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from bot.core.masking import mask
from bot.evidence.collect.parse.contract import Broken, Refused
from bot.evidence.tests.parse.block import Environment
from bot.evidence.tests.parse.cases import FAILING, MOST_CASES, Attempt, Cases, Declared, Outcome
from bot.evidence.tests.parse.texts import (
    LONGEST_TIME,
    MESSAGE_MOST,
    PROPERTIES_OF_CASE,
    STACK_MOST,
    SourcePlace,
    beginning,
    ending,
    kept_properties,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = "0.1"
LINE_MOST = 1024 * 1024
NUMBER_MOST = 2**63 - 1
STACK = "stack"  # among the properties of an attempt, as our plugin for pytest writes it
OUTCOMES = {outcome.name.lower(): outcome for outcome in Outcome}
Number = Annotated[int, msgspec.Meta(ge=0)]


class ReportHead(msgspec.Struct, kw_only=True, tag="report"):
    """The first line."""

    schema_version: str
    report_uuid: str
    repo: str = ""
    github_workflow_job_id: int = 0
    environment: Environment = msgspec.field(default_factory=Environment)
    flags: dict[str, Any] | None = None  # environment variables
    properties: dict[str, Any] | None = None


class Run(msgspec.Struct, kw_only=True, tag="run"):
    """One attempt of one case."""

    schema_version: str
    file: str
    suite: str
    case_name: str
    outcome: str
    declared_case_name: str | None = None
    language: str | None = None
    rerun_number: Number = 0
    outcome_summary: str | None = None
    started_at: float | None = None  # milliseconds since 1970
    ended_at: float | None = None
    properties: dict[str, Any] | None = None


class RunReport(NamedTuple):
    """A report's first line and the cases of the others."""

    head: ReportHead
    cases: Cases
    started_at: float | None  # of its first attempt, in milliseconds since 1970; None: it does not say


_LINE: msgspec.json.Decoder[ReportHead | Run] = msgspec.json.Decoder(ReportHead | Run)


def parse_run_report(pieces: Iterable[bytes]) -> RunReport:
    """Parse a report; raises Broken if it cannot be read, Refused over a limit."""
    head: ReportHead | None = None
    runs: dict[tuple[str, str, str], list[Run]] = {}
    count = 0
    for number, line in _lines(pieces):
        decoded = _decoded(line, number)
        if decoded.schema_version != SCHEMA:
            raise Broken(f"line {number}: schema {decoded.schema_version[:20]!r}, only {SCHEMA!r} is read")
        if isinstance(decoded, ReportHead):
            if head is not None:
                raise Broken(f"line {number}: a second report in one file")
            head = _checked(decoded)
            continue
        if head is None:
            raise Broken("line 1 is not of type report")
        if decoded.outcome not in OUTCOMES:
            raise Broken(f"line {number}: unknown outcome {decoded.outcome[:20]!r}")
        count += 1
        if count > MOST_CASES:
            raise Refused(f"over {MOST_CASES:,} runs")
        runs.setdefault((decoded.file, decoded.suite, decoded.case_name), []).append(decoded)
    if head is None:
        raise Broken("the file is empty")
    began = (run.started_at for attempts in runs.values() for run in attempts)
    return RunReport(head, _cases(runs), min((at for at in began if at is not None), default=None))


def _checked(head: ReportHead) -> ReportHead:
    """Return a report's first line, without numbers that are too large for a database."""
    if not 0 <= head.github_workflow_job_id <= NUMBER_MOST:
        head.github_workflow_job_id = 0
    if not 0 <= head.environment.device_count <= NUMBER_MOST:
        head.environment.device_count = 0
    return head


def _cases(runs: dict[tuple[str, str, str], list[Run]]) -> Cases:
    cases = Cases()
    for (file, suite, full_name), attempts in runs.items():
        attempts.sort(key=lambda run: run.rerun_number)
        newest = attempts[-1]
        group = cases.group(SourcePlace(short_name(file), short_name(suite)))
        name = short_name(full_name)
        group.add(name, [_attempt(run) for run in attempts], _milliseconds(newest), 0)
        if newest.declared_case_name or newest.language:
            group.declared[name] = Declared(
                short_name(newest.declared_case_name or ""), short_name(newest.language or "")
            )
        if properties := _properties(attempts):
            group.properties[name] = properties
    return cases


def _properties(attempts: list[Run]) -> dict[str, str]:
    """Return the properties of the newest failed attempt, without its stack trace."""
    failed = (run for run in reversed(attempts) if OUTCOMES[run.outcome] in FAILING)
    said = next(failed, None)
    given = (said and said.properties) or {}
    return kept_properties({name: given[name] for name in given if name != STACK}, PROPERTIES_OF_CASE)


def _attempt(run: Run) -> Attempt:
    stack = (run.properties or {}).get(STACK)
    return Attempt(
        OUTCOMES[run.outcome],
        beginning(mask(run.outcome_summary or ""), MESSAGE_MOST),
        stack=ending(mask(stack), STACK_MOST) if isinstance(stack, str) else "",
    )


def _milliseconds(run: Run) -> int | None:
    if run.started_at is None or run.ended_at is None:
        return None
    took = run.ended_at - run.started_at
    return round(took) if 0 <= took <= LONGEST_TIME * 1000 else None


def _decoded(line: bytes, number: int) -> ReportHead | Run:
    try:
        return _LINE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"line {number}: {error}") from None


def _lines(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers from 1; a truncated last line is dropped."""
    rest, number = b"", 0
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in [*lines, rest]:
            if len(line) > LINE_MOST:
                raise Refused(f"line {number + 1} has over {LINE_MOST // 1024} KiB")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
    if rest.strip():
        try:
            _LINE.decode(rest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if not number:
                raise Broken("the only line is torn") from None
            return
        yield number + 1, rest
