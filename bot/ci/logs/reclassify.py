"""Task reclassify: has stored logs of failed jobs looked at again when the rules for them have changed.

Newest first, and those first that no rule explained. A run takes a few seconds, notes how far it came, and leaves the
machine three times as long to others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from bot.ci.collect.blob_store import BlobMissing, copy_to
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.parse.contract import Request
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.workspace import WORKSPACE
from bot.ci.logs import store_log
from bot.ci.logs.findings import Classified
from bot.ci.logs.parse.options import ParserOptions
from bot.ci.logs.parse.steps import steps_of
from bot.ci.logs.store import log_rows, reclassify_rows, ruleset_rows
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from bot.ci.logs.parse.rules import Ruleset
    from bot.ci.logs.store.reclassify_rows import Candidate
    from bot.ci.logs.tables import Progress
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

PARSER = "bot.ci.logs.parse.parse_log:classify_stored"
LOOKED_AT = 100  # verdicts in one run
SLICE = 5.0  # seconds of reading in one run
PAUSE = 3.0  # as long again, and twice more: at most a quarter of a core
MIB = 1024 * 1024
_CLASSIFIED = msgspec.msgpack.Decoder(Classified)


async def enqueue_due(tx: Transaction, settings: Settings) -> None:
    """Have the logs of those repositories looked at again whose rules are others than theirs were classified by."""
    for repository_id in await ruleset_rows.ids_with_logs(tx):
        repo = await reclassify_rows.name_of(tx, repository_id)
        reached = await reclassify_rows.find_progress(tx, repository_id)
        digest = (await ruleset_rows.rules_in_force(tx, settings, repo)).digest
        if reached is None or reached["ruleset"] != digest or reached["phase"] != reclassify_rows.DONE:
            tx.enqueue("reclassify", str(repository_id))


async def reclassify_logs(context: Context, task: Task) -> None:
    """Classify some logs of a repository again (key: its id), and come back for the rest."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    async with context.store.transaction() as tx:
        reached = await _reached(tx, context.settings, int(task.key))
        since = tx.now - context.settings.of(CollectSettings).ci_log_retention_days * log_rows.DAY
        found = await reclassify_rows.following_candidates(tx, reached, since=since, limit=LOOKED_AT)
    began, spent = time.monotonic(), 0.0
    for one in found:
        await _again(context, int(task.key), one)
        reached = reached | {"at": one["at"], "job_id": one["job_id"]}
        spent = time.monotonic() - began
        if spent > SLICE:
            break
    else:
        if len(found) < LOOKED_AT and reached["phase"] != reclassify_rows.DONE:
            reached = reclassify_rows.first_progress(int(task.key), reached["ruleset"]) | {
                "phase": reached["phase"] + 1
            }
    async with context.store.transaction() as tx:
        await reclassify_rows.store_progress(tx, reached)
        if reached["phase"] != reclassify_rows.DONE:
            tx.enqueue("reclassify", task.key, delay=PAUSE * spent)


async def _reached(tx: Transaction, settings: Settings, repository_id: int) -> Progress:
    """Return how far it is: at the beginning, where the rules have changed since."""
    repo = await reclassify_rows.name_of(tx, repository_id)
    digest = (await ruleset_rows.rules_in_force(tx, settings, repo)).digest
    known = await reclassify_rows.find_progress(tx, repository_id)
    return (
        known
        if known and known["ruleset"] == digest
        else reclassify_rows.first_progress(repository_id, digest)
    )


async def _again(context: Context, repository_id: int, one: Candidate) -> None:
    """Look at one log again, unless it was classified by the rules for it."""
    async with context.store.read() as tx:
        ruleset = await ruleset_rows.rules_in_force(tx, context.settings, one["repo"] or "")
        before = await log_rows.verdicts_of_jobs(tx, repository_id, [one["job_id"]])
    chosen = ruleset.applied_to(one["repo"], one["workflow_name"])
    if chosen.digest == one["ruleset"]:
        return
    noted = tuple(row["line"] for row in before if row["rule"] and row["line_num"] is None and row["line"])
    classified = await _classified(context, one, chosen, noted)
    if classified is None:
        return
    async with context.store.transaction() as tx:
        log = await log_rows.find_log(tx, repository_id, one["job_id"])
        before = await log_rows.verdicts_of_jobs(tx, repository_id, [one["job_id"]])
        if log is None or log["sha256"] != one["sha256"] or not before:
            return  # another log is here by now, classified when it came
        await store_log.replace_findings(tx, before[0], classified)


async def _classified(
    context: Context, one: Candidate, ruleset: Ruleset, noted: tuple[str, ...]
) -> Classified | None:
    """Return what the rules find in a stored log, None where it can no longer be read."""
    async with context.resource(WORKSPACE).folder() as folder:
        paths = {name: (folder / name).absolute() for name in ("file", "blob", "answer")}
        try:
            await copy_to(context.resource(BLOBS), one["blob"], paths["file"])
        except BlobMissing:
            return None
        request = Request(
            parser=PARSER,
            path=str(paths["file"]),
            blob=str(paths["blob"]),
            answer=str(paths["answer"]),
            options=msgspec.to_builtins(
                ParserOptions(ruleset=ruleset, steps=steps_of(one["steps"]), annotations=noted)
            ),
            most_written=MIB,
        )
        reply = await context.resource(WORKSPACE).parsers.parse(request)
        if reply.state != "parsed":
            return None
        return _CLASSIFIED.decode(paths["answer"].read_bytes())
