"""Tasks log_rules and reclassify: read the rules again, and classify stored logs again where they changed.

A wrong file leaves its last good version in force and says so. Logs are looked at newest first, and those
first that no rule explained. A run takes a few seconds, notes how far it came, and leaves the machine three
times as long to others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, GiveUp, RetryLater
from bot.db.rows import Json, Text, select
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.parse.contract import Request
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.remote_blobs import BlobMissing, copy_to
from bot.evidence.logs import rows, store_log
from bot.evidence.logs.failed_jobs import JOB, NAME, REPO, WORKFLOW, JobName, with_jobs
from bot.evidence.logs.failure_costs import UNNAMED
from bot.evidence.logs.feature import LogsSettings
from bot.evidence.logs.parse import rulesets
from bot.evidence.logs.parse.contract import ParserOptions, parse_steps
from bot.evidence.logs.tables import (
    FIRST,
    LogFindings,
    LogKey,
    Progress,
    VerdictAt,
    VerdictRuleset,
    ci_log,
    ci_reclassified,
    ci_verdict,
)
from bot.ingest.tables import records
from bot.jobs.settings import CollectSettings
from bot.oot.allowlist import allowlist

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.logs.parse.rulesets import Ruleset
    from bot.queue.tasks import Task

logger = structlog.get_logger("bot.evidence.logs.reclassify")

RULES_READ_EVERY = 600.0  # seconds
PARSER = "bot.evidence.logs.parse.parse_log:classify_stored"
LOOKED_AT = 100  # verdicts in one run
SLICE = 5.0  # seconds of reading in one run
PAUSE = 3.0  # as long again, and twice more: at most a quarter of a core
MIB = 1024 * 1024
_FINDINGS = msgspec.msgpack.Decoder(LogFindings)
UNEXPLAINED, EXPLAINED, DONE = 0, 1, 2  # new rules are tried on jobs first that no rule explains
LAST = 2**62  # later than any time, greater than any id
PROGRESS, VERDICT, REPOSITORY = ci_reclassified.c, ci_verdict.c, records["repository"].c


class Candidate(LogKey, VerdictRuleset, JobName, VerdictAt):
    """A verdict that other rules may change."""

    blob: Text
    sha256: Text  # of the log
    repo: Text | None
    steps: Json[Any] | None


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"log_rules": RULES_READ_EVERY}


async def load_rules(context: Context, _task: Task) -> None:
    """Read every source: those of the settings, and the file of each repository with logs."""
    async with context.store.read() as tx:
        repos = await store_log.repositories_with_logs(tx)
    unreachable: RetryLater | None = None
    for source in context.settings.of(LogsSettings).ci_log_rules:
        unreachable = await _read_source(context, source, source, optional=False) or unreachable
    for repo in repos:
        own = store_log.own_source(repo)
        unreachable = (
            await _read_source(context, f"{repo}:{store_log.OWN_RULES}", own, optional=True) or unreachable
        )
    async with context.store.transaction() as tx:
        await enqueue_due(tx, context.settings)
    if unreachable:
        raise unreachable


async def _read_source(context: Context, place: str, source: str, *, optional: bool) -> RetryLater | None:
    """Read and store one source; return the error if GitHub cannot be reached."""
    content, error, count = "", None, 0
    try:
        content = await allowlist.read_source(place, context.app_for)
        count = len(rulesets.parse_rules(content.encode(), source).rules)
    except RetryLater as problem:
        return problem
    except allowlist.NoAllowlistText as problem:
        cause = problem.__cause__
        absent = isinstance(cause, GitHubRefused) and cause.gone
        if optional and not absent:
            return None
        error = None if optional else f"{source} cannot be read: {problem}"
    except rulesets.RulesetError as problem:
        error = str(problem)
    async with context.store.transaction() as tx:
        await store_log.store_version(tx, source, content, error=error, count=count)
    if error:
        logger.error(
            "rules for logs are wrong; the last good version stays in force", source=source, error=error
        )
    return None


async def enqueue_due(tx: Transaction, settings: Settings) -> None:
    """Enqueue the repositories whose logs were classified by other rules than theirs are now."""
    for repository_id in await store_log.ids_with_logs(tx):
        repo = await repository_name(tx, repository_id)
        reached = await find_progress(tx, repository_id)
        digest = (await store_log.rules_in_force(tx, settings, repo)).digest
        if reached is None or reached["ruleset"] != digest or reached["phase"] != DONE:
            tx.enqueue("reclassify", str(repository_id))


async def reclassify_logs(context: Context, task: Task) -> None:
    """Classify some logs of a repository again (key: its id), and come back for the rest."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    async with context.store.transaction() as tx:
        reached = await _current_progress(tx, context.settings, int(task.key))
        since = tx.now - context.settings.of(CollectSettings).ci_log_retention_days * rows.DAY
        candidates = await following_candidates(tx, reached, since=since, limit=LOOKED_AT)
    began, spent = time.monotonic(), 0.0
    for candidate in candidates:
        await _classify_again(context, int(task.key), candidate)
        reached = reached | {"at": candidate["at"], "job_id": candidate["job_id"]}
        spent = time.monotonic() - began
        if spent > SLICE:
            break
    else:
        if len(candidates) < LOOKED_AT and reached["phase"] != DONE:
            reached = first_progress(int(task.key), reached["ruleset"]) | {"phase": reached["phase"] + 1}
    async with context.store.transaction() as tx:
        await store_progress(tx, reached)
        if reached["phase"] != DONE:
            tx.enqueue("reclassify", task.key, delay=PAUSE * spent)


async def _current_progress(tx: Transaction, settings: Settings, repository_id: int) -> Progress:
    """Return how far a repository has come: back at the start if its rules have changed since."""
    repo = await repository_name(tx, repository_id)
    digest = (await store_log.rules_in_force(tx, settings, repo)).digest
    known = await find_progress(tx, repository_id)
    return known if known and known["ruleset"] == digest else first_progress(repository_id, digest)


async def _classify_again(context: Context, repository_id: int, candidate: Candidate) -> None:
    """Classify one log again, unless its verdict is by the present rules."""
    async with context.store.read() as tx:
        ruleset = await store_log.rules_in_force(tx, context.settings, candidate["repo"] or "")
        before = await rows.verdicts_of_jobs(tx, repository_id, [candidate["job_id"]])
    chosen = ruleset.applied_to(candidate["repo"], candidate["workflow_name"])
    if chosen.digest == candidate["ruleset"]:
        return
    noted = tuple(row["line"] for row in before if row["rule"] and row["line_num"] is None and row["line"])
    classified = await _classify_stored(context, candidate, chosen, noted)
    if classified is None:
        return
    async with context.store.transaction() as tx:
        log = await rows.find_log(tx, repository_id, candidate["job_id"])
        before = await rows.verdicts_of_jobs(tx, repository_id, [candidate["job_id"]])
        if log is None or log["sha256"] != candidate["sha256"] or not before:
            return  # another log is here by now, classified when it came
        await store_log.replace_findings(tx, before[0], classified)


async def _classify_stored(
    context: Context, candidate: Candidate, ruleset: Ruleset, noted: tuple[str, ...]
) -> LogFindings | None:
    """Return the rules' findings in a stored log, or None if it can no longer be read."""
    async with context.resource(WORKSPACE).folder() as folder:
        paths = {name: (folder / name).absolute() for name in ("file", "blob", "answer")}
        try:
            await copy_to(context.resource(BLOBS), candidate["blob"], paths["file"])
        except BlobMissing:
            return None
        request = Request(
            parser=PARSER,
            path=str(paths["file"]),
            blob=str(paths["blob"]),
            answer=str(paths["answer"]),
            options=msgspec.to_builtins(
                ParserOptions(ruleset=ruleset, steps=parse_steps(candidate["steps"]), annotations=noted)
            ),
            most_written=MIB,
        )
        reply = await context.resource(WORKSPACE).parsers.parse(request)
        if reply.state != "parsed":
            return None
        return _FINDINGS.decode(paths["answer"].read_bytes())


async def repository_name(tx: Transaction, repository_id: int) -> str:
    """Return a repository's name, or an empty string if it is not known."""
    query = sa.select(REPOSITORY.full_name).where(REPOSITORY.repository_id == repository_id)
    return (await tx.run(query)).scalar() or ""


async def find_progress(tx: Transaction, repository_id: int) -> Progress | None:
    """Return how far a repository's logs have been classified again."""
    return await tx.fetch_first(
        select(Progress, ci_reclassified).where(PROGRESS.repository_id == repository_id)
    )


def first_progress(repository_id: int, ruleset: str) -> Progress:
    """Return the progress of a repository at its start."""
    return {
        "repository_id": repository_id,
        "ruleset": ruleset,
        "phase": UNEXPLAINED,
        "at": LAST,
        "job_id": LAST,
    }


async def store_progress(tx: Transaction, reached: Progress) -> None:
    """Store how far a repository has come."""
    values = dict(reached)
    statement = tx.insert(ci_reclassified).values(values)
    await tx.run(statement.on_conflict_do_update(index_elements=["repository_id"], set_=values))


async def following_candidates(
    tx: Transaction, reached: Progress, *, since: int, limit: int
) -> list[Candidate]:
    """Return the verdicts that follow the last one looked at, on logs still kept since a time."""
    log = ci_log.c
    kind = VERDICT.kind.in_(UNNAMED)
    of_log = sa.and_(log.repository_id == VERDICT.repository_id, log.job_id == VERDICT.job_id)
    logged = with_jobs(ci_verdict.join(ci_log, of_log), VERDICT.repository_id, VERDICT.job_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "steps": JOB.steps}
    query = (
        select(Candidate, ci_verdict, ci_log, **computed)
        .select_from(logged)
        .where(
            FIRST,
            VERDICT.repository_id == reached["repository_id"],
            kind if reached["phase"] == UNEXPLAINED else sa.not_(kind),
            VERDICT.at <= reached["at"],
            sa.or_(VERDICT.at < reached["at"], VERDICT.job_id < reached["job_id"]),
            VERDICT.at >= since,
            log.blob.is_not(None),
        )
        .order_by(VERDICT.at.desc(), VERDICT.job_id.desc())
        .limit(limit)
    )
    return await tx.fetch(query)
