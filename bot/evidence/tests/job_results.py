"""Task test_results: merges the reports of a job and stores what they say.

Its key is repository, run, attempt and job, separated by `/`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.core.errors import GiveUp, RetryLater
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.parse.contract import Request
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import MIB, partial_number
from bot.evidence.collect.remote_blobs import BlobMissing
from bot.evidence.tests import (
    days,
    environments,
    job_facts,
    job_parts,
    judging_rows,
    known_tests,
    later_facts,
    rows,
    states,
)
from bot.evidence.tests.environments import TestSettings
from bot.evidence.tests.known_tests import PAUSE, KnownIds, Sighting, TooManyNew, in_batches
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import NO_TIME, Code, Merged, outcome_of
from bot.evidence.tests.parse.texts import DEVICES, DIGEST
from bot.evidence.tests.tables import JobKeyRow, test_failure, test_job, test_summary
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.tests.job_facts import Facts
    from bot.evidence.tests.parse.block import Exceptional, MergedGroup
    from bot.evidence.tests.tables import PartRow
    from bot.queue.tasks import Task

MERGE = "bot.evidence.tests.parse.artifact:merge_parts"
ANSWER_MOST = 256 * MIB
NOTES_MOST = 50
SUMMARY_BYTES = 100
DISK_WAIT = 600.0  # seconds
FAILURES = 50  # rows of one transaction: their texts are long
_MERGED = msgspec.msgpack.Decoder(Merged)
RERUN_DISABLED = "rerun_disabled_tests"  # among the arguments of a job
MESSAGE_LINE = 300  # characters of a message that tell failures apart
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|/[\w./-]+/")
SUCCESSES = frozenset({Code.PASSED, Code.XFAILED, Code.XPASSED})
FILE_MOST = 500  # characters
LINE_MOST = 2**31 - 1  # what GitHub and databases take
_FORMS = (
    re.compile(r'^[ \t]*File "([^"\r\n]{1,500})", line (\d{1,10})\b', re.MULTILINE),  # Python's tracebacks
    # pytest, GoogleTest and Go begin a line with it
    re.compile(r"^[ \t]*((?:[A-Za-z]:)?[\w./\\+-]{1,490}\.[A-Za-z]\w{0,9}):(\d{1,10})(?=[:\s]|$)", re.MULTILINE),
    re.compile(r"\bpanicked at (?:'[^\n]{0,200}', )?([^\s:']{1,500}):(\d{1,10}):\d"),  # Rust
)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class _Job(NamedTuple):
    """A job and everything its reports say."""

    key: JobKeyRow
    facts: Facts
    parts: list[PartRow]
    merged: Merged
    devices: frozenset[str]
    crashed: int  # files that gave no report
    is_partial: bool  # it still runs


class JobRows(NamedTuple):
    """The rows stored for a job."""

    block: bytes
    summaries: list[dict[str, Any]]
    failures: list[dict[str, Any]]


class SourceLine(NamedTuple):
    """A line of a file, with the report's path: relative to some folder, or absolute on the machine it ran on."""

    file: str
    line: int


async def store_job_results(context: Context, task: Task) -> None:
    """Rebuild a job's rows from its parts; if a part is no longer kept, the rows stay as they are."""
    key = job_parts.parse_key(task.key)
    async with context.store.read() as tx:
        parts, is_partial = _present(await rows.parts_of_job(tx, key))
        facts = await job_facts.read_facts(tx, context.settings, key, parts)
        devices = await _devices(tx)
    if facts is not None and is_partial:
        facts = replace(facts, subject={**facts.subject, "trusted": False})
    if facts is None or any(part["blob"] is None for part in parts):
        return
    if await asyncio.to_thread(context.resource(WORKSPACE).disk_full):
        raise RetryLater("the disk of DATA_DIR is nearly full: no results are stored", after=DISK_WAIT)
    async with context.resource(WORKSPACE).folder() as folder:
        try:
            merged = await _merge(context, parts, folder)
        except BlobMissing:
            return  # deleted after its retention
    async with context.store.read() as tx:
        missing = await later_facts.missing_files(tx, key, facts, merged)
    if parts or missing:
        merged.groups += map(later_facts.group_without_report, missing)
        await _store(context, _Job(key, facts, parts, merged, devices, len(missing), is_partial))


async def delete_generations(context: Context, generations: list[int]) -> None:
    """Delete, in batches, the rows of generations that no job refers to."""
    for table in (test_failure, test_summary):
        keys = list(table.primary_key.columns)
        while True:
            async with context.store.transaction() as tx:
                query = sa.select(*keys).where(table.c.generation.in_(generations)).limit(known_tests.BATCH)
                old = [tuple(row) for row in (await tx.run(query)).all()]
                if old:
                    await tx.run(sa.delete(table).where(tx.among(keys, old)))
            if len(old) < known_tests.BATCH:
                break
            await context.clock.sleep(PAUSE)


def make_rows(
    merged: Merged, known: KnownIds, of_summary: dict[str, Any], of_failure: dict[str, Any]
) -> JobRows:
    """Make a job's block and rows; the two mappings hold the columns that all rows of a kind share."""
    cases: list[tuple[int, int, int]] = []
    summaries, failures = [], []
    for group in merged.groups:
        digests, times = group.digests, array("I", group.times)
        ids = [known.tests[digests[at : at + DIGEST]] for at in range(0, len(digests), DIGEST)]
        cases.extend(zip(ids, group.codes, times, strict=True))
        if any(outcome_of(code) is not Code.CRASHED for code in group.codes):
            summaries.append(of_summary | _summary(group, times, known))
        failures += [
            of_failure | _failure(case, group, ids[case.position], times[case.position])
            for case in group.exceptional
        ]
    return JobRows(block.encode(cases), summaries, failures)


def signature(kind: str, message: str) -> str | None:
    """Return the signature of a failure: its first line without numbers and paths."""
    line = message.strip().partition("\n")[0][:MESSAGE_LINE]
    if not line and not kind:
        return None
    text = f"{kind}\0{_CHANGING.sub('#', line)}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def find_source_line(file: str, line: int | None, *texts: str) -> SourceLine | None:
    """Find where a case failed; None if its report does not say.

    `file` and `line` are the case's own. The last line of the first text that names the case's file is the most
    precise; a case without a file failed where its text says.
    """
    own = _source_line(file, str(line)) if file and line is not None else None
    for text in texts:
        named = [
            line_of_text for line_of_text in _named(text) if not file or is_same(line_of_text.file, file)
        ]
        if named:
            return named[-1]
    return own


def is_same(path: str, other: str) -> bool:
    """Whether two paths may name the same file, seen from different folders."""
    path, other = f"/{_plain(path)}", f"/{_plain(other)}"
    return path.endswith(other) or other.endswith(path)


def _present(parts: list[PartRow]) -> tuple[list[PartRow], bool]:
    """Return the parts that count, and whether the job is still running as far as they tell.

    What a job leaves while it runs holds all until then: only the last counts, and none once there is another part.
    """
    numbered = [(number, part) for part in parts if (number := partial_number(part["name"])) is not None]
    if not numbered or len(numbered) < len(parts):
        return [part for part in parts if partial_number(part["name"]) is None], False
    return [
        max(numbered, key=lambda numbered_part: (numbered_part[0], numbered_part[1]["object_id"]))[1]
    ], True


async def _devices(tx: Transaction) -> frozenset[str]:
    """Return the words that stand for a device in test names."""
    listed = await allowlists.read_in_force(tx)
    own = {
        word for entry in (listed.entries if listed else ()) for word in (entry.device, *entry.aka) if word
    }
    return DEVICES | {word.lower() for word in own}


async def _merge(context: Context, parts: list[PartRow], folder: Path) -> Merged:
    """Let the parser child merge the parts."""
    given = folder / "parts"
    await asyncio.to_thread(given.mkdir)
    for part in parts:
        content = await context.resource(BLOBS).get(part["blob"] or "")
        await asyncio.to_thread((given / str(part["object_id"])).write_bytes, content)
    answer = folder / "answer"
    request = Request(
        parser=MERGE,
        path=str(given.absolute()),
        blob=str((folder / "blob").absolute()),
        answer=str(answer.absolute()),
        most_written=ANSWER_MOST,
    )
    reply = await context.resource(WORKSPACE).parsers.parse(request)
    if reply.state != "parsed":
        raise GiveUp(f"the reports cannot be merged: {reply.reason}")
    return await asyncio.to_thread(_decoded, answer)


def _decoded(answer: Path) -> Merged:
    return _MERGED.decode(answer.read_bytes())


async def _store(context: Context, job: _Job) -> None:
    key, facts, merged, devices = job.key, job.facts, job.merged, job.devices
    rerun_disabled = merged.repeats or RERUN_DISABLED in facts.name.arguments
    seen = Sighting(key["repository_id"], facts.at, facts.subject["trusted"] and not rerun_disabled)
    try:
        known = await known_tests.ids_of_groups(context, merged.groups, seen, devices)
    except TooManyNew as error:
        merged.unreadable.append(("all reports", str(error)))
        merged.groups, known = [], KnownIds({}, {})
    generation = context.clock.now() * rows.GENERATIONS + secrets.randbelow(rows.GENERATIONS)
    common = {"generation": generation, "at": facts.at}
    of_failure = common | {
        "repository_id": key["repository_id"], "trusted": seen.trusted, "head_sha": facts.tested,
    }  # fmt: skip
    made = await asyncio.to_thread(make_rows, merged, known, common, of_failure)
    if not seen.trusted:
        await _limit_rows(context, job, made)
    if facts.subject["trusted"] or facts.subject["backend"]:
        for some in in_batches(made.summaries):
            await _insert(context, test_summary, some)
    for some in in_batches(made.failures, FAILURES):
        await _insert(context, test_failure, some)
    row = _row(job) | {
        "generation": generation, "block": made.block, "rerun_disabled": rerun_disabled,
    }  # fmt: skip
    async with context.store.transaction() as tx:
        environment = environments.environment_of_job(
            merged.environment,
            facts.name,
            table=context.settings.of(TestSettings).job_env,
            devices=devices,
        )
        row["env_id"] = await rows.environment_id(tx, environment)
        former = await _swap(tx, key, row)
        await _request_what_follows(
            tx, key, {failure["test_id"] for failure in made.failures}, trusted=seen.trusted
        )
    if former:
        await delete_generations(context, [former])


async def _request_what_follows(
    tx: Transaction, key: JobKeyRow, failing: Collection[int], *, trusted: bool
) -> None:
    """Request the tasks that depend on a job's results."""
    days.request_days(tx, key["repository_id"])
    if trusted and failing:
        states.request_states(tx, key["repository_id"])
    stored = await rows.job_by_key(tx, key)
    assert stored
    if stored["trusted"] or stored["backend"]:
        rows.request_losses(tx, key["repository_id"], key["run_id"])
    if trusted:
        await later_facts.request_again(tx, stored)
    if stored["backend"] and stored["upstream_sha"]:
        await rows.request_publish_of_commit(tx, stored["upstream_sha"])
    rows.request_verdicts(tx, await judging_rows.heads_concerned(tx, stored, failing))


async def _limit_rows(context: Context, job: _Job, made: JobRows) -> None:
    """Drop the rows of an untrusted run if such runs have stored too many today."""
    size = sum(len(failure[name]) for failure in made.failures for name in ("message", "stack", "output"))
    size += len(made.summaries) * SUMMARY_BYTES
    rows_made = len(made.failures) + len(made.summaries)
    async with context.store.transaction() as tx:
        taken = await known_tests.take_quota(tx, job.key["repository_id"], rows=rows_made, size=size)
    if not taken:
        job.merged.left_out += len(made.failures)
        made.failures.clear()
        made.summaries.clear()


async def _insert(context: Context, table: sa.Table, some: Any) -> None:
    async with context.store.transaction() as tx:
        await tx.run(sa.insert(table), list(some))
    await context.clock.sleep(PAUSE)


def _row(job: _Job) -> dict[str, Any]:
    key, facts, parts, merged = job.key, job.facts, job.parts, job.merged
    unreadable = [report for part in parts for report in part["unreadable"]]
    unreadable += [{"member": member, "reason": reason} for member, reason in merged.unreadable]
    name = facts.name
    return {
        **key,
        **merged.counts,
        **facts.subject,
        "workflow": name.workflow,
        "name": name.name,
        "family": name.shard_free,
        "base_name": name.base_name,
        "config": name.config,
        "shard": name.shard,
        "shards": name.shards,
        "crashed": job.crashed,
        "left_out": merged.left_out,
        "time_ms": merged.time_ms,
        "files": merged.files,
        "partial": job.is_partial,
        "flags": merged.flags or None,
        "properties": merged.properties or None,
        "unreadable": sorted(unreadable, key=lambda report: (report["member"], report["reason"])),
        "notes": [note for part in parts for note in part["notes"] or ()][:NOTES_MOST] or None,
        "at": facts.at,
        "received_at": max((part["received_at"] for part in parts), default=facts.at),
    }


async def _swap(tx: Transaction, key: JobKeyRow, row: dict[str, Any]) -> int | None:
    """Show the new generation and return the former one; what the daily sums hold of it stays known."""
    c = test_job.c
    query = sa.select(c.generation, c.counted, c.block, c.counted_block)
    before = await tx.row(query.where(rows.is_of_job(test_job, key)))
    counted: dict[str, Any] = {"counted": 0, "counted_block": None}
    if before:
        is_counted = before["counted"] == before["generation"]
        block = before["block"] if is_counted else before["counted_block"]
        counted = {"counted": before["counted"], "counted_block": block}
    values = row | counted
    await tx.upsert(test_job, [values], replaced=list(values))
    tx.note_changed("test_job", [values])
    return before["generation"] if before else None


def _summary(group: MergedGroup, times: array[int], known: KnownIds) -> dict[str, Any]:
    codes = Counter(group.codes)
    outcomes: Counter[int] = Counter()
    for code, count in codes.items():
        outcomes[code & 0xF] += count
    return {
        "class_id": known.classes[group.file, group.suite],
        "invoking_file": group.invoking_file,
        "tests": len(group.codes),
        "failures": outcomes[Code.FAILED] + outcomes[Code.TIMED_OUT],
        "errors": outcomes[Code.ERROR],
        "skipped": outcomes[Code.SKIPPED],
        "successes": sum(outcomes[code] for code in SUCCESSES),
        "flaky": sum(case.flaky for case in group.exceptional),
        "time_ms": sum(time for time in times if time != NO_TIME),
    }


def _failure(case: Exceptional, group: MergedGroup, test_id: int, time: int) -> dict[str, Any]:
    failed_at = find_source_line(group.file, case.line, case.stack, case.message, case.output)
    return {
        "test_id": test_id,
        "invoking_file": group.invoking_file,
        "outcome": group.codes[case.position] & 0xF,
        "flaky": case.flaky,
        "attempts": case.attempts,
        "failed_attempts": case.failed_attempts,
        "time_ms": None if time == NO_TIME else time,
        "type": case.type,
        "message": case.message,
        "stack": case.stack,
        "output": case.output,
        "source_file": failed_at and failed_at.file,
        "line": failed_at and failed_at.line,
        "signature": signature(case.type, case.message) if case.failed_attempts else None,
        "verdict": None,
        "evidence": None,
        "properties": case.properties or None,
    }


def _named(text: str) -> Iterator[SourceLine]:
    """Yield the source lines that a text names, form by form."""
    for form in _FORMS:
        for matched in form.finditer(text):
            if place := _source_line(matched[1], matched[2]):
                yield place


def _source_line(file: str, line: str) -> SourceLine | None:
    """Return a source line; None if the path leaves its folder or is invalid, or the number is no line number."""
    plain, number = _plain(file), int(line)
    if not 0 < number <= LINE_MOST or not 0 < len(plain) <= FILE_MOST:
        return None
    if _CONTROL.search(plain) or not {"..", ""}.isdisjoint(plain.removeprefix("/").split("/")):
        return None
    return SourceLine(plain, number)


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")
