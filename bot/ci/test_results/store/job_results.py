"""test_results: makes what a job's reports say of all its parts. Key: repository, run, attempt and job, by `/`.

Rows are written under a new generation, which the job's own row names at the end: until then readers see the old one.
A process that ends in between leaves rows that no job names; they are deleted later.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.ci.collect.attribution import partial_number
from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.parse.contract import Request
from bot.ci.collect.receiving import MIB
from bot.ci.collect.workspace import WORKSPACE
from bot.ci.test_results import environments, job_rows
from bot.ci.test_results.job_tables import JobKeyRow, test_job
from bot.ci.test_results.parse.identity import DEVICES
from bot.ci.test_results.parse.parsed import Merged
from bot.ci.test_results.settings import TestSettings
from bot.ci.test_results.store import (
    count_days,
    crashed_files,
    evaluate_states,
    job_facts,
    job_parts,
    judging_rows,
    known_tests,
    pulls_concerned,
    quota,
    requests,
    rows,
)
from bot.ci.test_results.store.known_tests import PAUSE, Known, Seen, TooManyNew, in_batches
from bot.ci.test_results.tables import test_failure, test_summary
from bot.core.errors import GiveUp, RetryLater
from bot.oot.allowlist import rows as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from bot.ci.test_results.job_rows import Made
    from bot.ci.test_results.store.job_facts import Facts
    from bot.ci.test_results.tables import PartRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

MERGE = "bot.ci.test_results.parse.artifact:merge_parts"
ANSWER_MOST = 256 * MIB
NOTES_MOST = 50
SUMMARY_BYTES = 100
DISK_WAIT = 600.0  # seconds
FAILURES = 50  # rows of one transaction: their texts are long
_MERGED = msgspec.msgpack.Decoder(Merged)
RERUN_DISABLED = "rerun_disabled_tests"  # among the arguments of a job


async def store_job_results(context: Context, task: Task) -> None:
    """Make a job's rows again of its parts; where one is no longer kept, what is there stays."""
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
        missing = await crashed_files.missing_files(tx, key, facts, merged)
    if parts or missing:
        merged.groups += map(crashed_files.group_without_report, missing)
        await _store(context, _Job(key, facts, parts, merged, devices, len(missing), is_partial))


def _present(parts: list[PartRow]) -> tuple[list[PartRow], bool]:
    """Return the parts that count, and whether the job still runs, as far as they tell.

    What a job leaves while it runs holds all until then: only the last counts, and none once there is another part.
    """
    numbered = [(number, part) for part in parts if (number := partial_number(part["name"])) is not None]
    if not numbered or len(numbered) < len(parts):
        return [part for part in parts if partial_number(part["name"]) is None], False
    return [max(numbered, key=lambda one: (one[0], one[1]["object_id"]))[1]], True


async def _devices(tx: Transaction) -> frozenset[str]:
    """Return the words that name a device in the names of tests."""
    listed = await allowlists.in_force(tx)
    own = {
        word for entry in (listed.entries if listed else ()) for word in (entry.device, *entry.aka) if word
    }
    return DEVICES | {word.lower() for word in own}


async def _merge(context: Context, parts: list[PartRow], folder: Path) -> Merged:
    """Have the child merge the parts."""
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


class _Job(NamedTuple):
    """A job, and all there is to say of it."""

    key: JobKeyRow
    facts: Facts
    parts: list[PartRow]
    merged: Merged
    devices: frozenset[str]
    crashed: int  # files that gave no report
    is_partial: bool  # it still runs


async def _store(context: Context, job: _Job) -> None:
    key, facts, merged, devices = job.key, job.facts, job.merged, job.devices
    rerun_disabled = merged.repeats or RERUN_DISABLED in facts.name.arguments
    seen = Seen(key["repository_id"], facts.at, facts.subject["trusted"] and not rerun_disabled)
    try:
        known = await known_tests.ids_of_groups(context, merged.groups, seen, devices)
    except TooManyNew as error:
        merged.unreadable.append(("all reports", str(error)))
        merged.groups, known = [], Known({}, {})
    generation = context.clock.now() * rows.GENERATIONS + secrets.randbelow(rows.GENERATIONS)
    common = {"generation": generation, "at": facts.at}
    of_failure = common | {
        "repository_id": key["repository_id"], "trusted": seen.trusted, "head_sha": facts.tested,
    }  # fmt: skip
    made = await asyncio.to_thread(job_rows.make_rows, merged, known, common, of_failure)
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
        await _request_what_follows(tx, key, {one["test_id"] for one in made.failures}, trusted=seen.trusted)
    if former:
        await delete_generations(context, [former])


async def _request_what_follows(
    tx: Transaction, key: JobKeyRow, failing: Collection[int], *, trusted: bool
) -> None:
    """Ask for all that depends on a job's results."""
    count_days.request(tx, key["repository_id"])
    if trusted and failing:
        evaluate_states.request(tx, key["repository_id"])
    stored = await rows.job_by_key(tx, key)
    assert stored
    if stored["trusted"] or stored["backend"]:
        requests.request_losses(tx, key["repository_id"], key["run_id"])
    if trusted:
        await crashed_files.request_again(tx, stored)
    if stored["backend"] and stored["upstream_sha"]:
        await pulls_concerned.request_publish_of_commit(tx, stored["upstream_sha"])
    requests.request_verdicts(tx, await judging_rows.heads_concerned(tx, stored, failing))


async def _limit_rows(context: Context, job: _Job, made: Made) -> None:
    """Leave the rows of a run that is not trusted out where such runs have stored too many today."""
    size = sum(len(one[name]) for one in made.failures for name in ("message", "stack", "output"))
    size += len(made.summaries) * SUMMARY_BYTES
    rows_made = len(made.failures) + len(made.summaries)
    async with context.store.transaction() as tx:
        taken = await quota.take(tx, job.key["repository_id"], rows=rows_made, size=size)
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
    unreadable = [one for part in parts for one in part["unreadable"]]
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
        "unreadable": sorted(unreadable, key=lambda one: (one["member"], one["reason"])),
        "notes": [note for part in parts for note in part["notes"] or ()][:NOTES_MOST] or None,
        "at": facts.at,
        "received_at": max((part["received_at"] for part in parts), default=facts.at),
    }


async def _swap(tx: Transaction, key: JobKeyRow, row: dict[str, Any]) -> int | None:
    """Show the new generation; returns the former one. What the daily sums hold of it stays known."""
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


async def delete_generations(context: Context, generations: list[int]) -> None:
    """Delete the rows of generations that no job names any more, some at a time."""
    for table in (test_failure, test_summary):
        keys = list(table.primary_key.columns)
        while True:
            async with context.store.transaction() as tx:
                query = sa.select(*keys).where(table.c.generation.in_(generations)).limit(known_tests.BATCH)
                found = [tuple(row) for row in (await tx.run(query)).all()]
                if found:
                    await tx.run(sa.delete(table).where(tx.among(keys, found)))
            if len(found) < known_tests.BATCH:
                break
            await context.clock.sleep(PAUSE)
