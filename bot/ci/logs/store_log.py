"""The receiver of parsed logs: its options, and how its findings become rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from bot.ci.collect.receiving import MIB, Fetched, Receiver
from bot.ci.logs import failure_kind
from bot.ci.logs.annotations import read_annotations
from bot.ci.logs.findings import ParsedLog
from bot.ci.logs.parse.classify import judge_annotations
from bot.ci.logs.parse.options import ParserOptions
from bot.ci.logs.parse.signature import signature, title
from bot.ci.logs.parse.steps import steps_of
from bot.ci.logs.store import failed_jobs, log_rows, private_failures, ruleset_rows
from bot.ci.logs.tables import JobOfVerdict, LogRow, VerdictRow
from bot.ci.trunk.store import job_causes
from bot.core import metrics
from bot.core.errors import RetryLater

if TYPE_CHECKING:
    from bot.ci.logs.findings import Classified, ParsedVerdict
    from bot.ci.logs.parse.rules import Ruleset
    from bot.ci.logs.tables import SignatureTitle, VerdictRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow

FAILED = frozenset({"failure", "timed_out", "cancelled", "startup_failure", "action_required"})
NO_LOG: ParsedLog = {
    "bytes": 0,
    "lines": 0,
    "longest_line": 0,
    "sha256": "",
    "first_at": None,
    "last_at": None,
    "truncated": False,
    "secrets_masked": 0,
    "verdicts": [],
    "first_error": None,
}
RULES_CHANGED = "the rules for logs changed while it was read"


async def parser_options(context: Context, fetched: Fetched) -> Any:
    """Return the options of the parser: the rules for this job, and its steps. Only failed jobs are classified."""
    async with context.store.read() as tx:
        job = await log_rows.find_job(tx, fetched.repository_id, fetched.object_id)
        failed = job["conclusion"] in FAILED if job else fetched.failed is not False
        chosen = await _rules(tx, context.settings, fetched, job) if failed else None
    steps = steps_of(job["steps"] if job else None)
    noted = await read_annotations(context, fetched) if chosen else ()
    return msgspec.to_builtins(ParserOptions(ruleset=chosen, steps=steps, annotations=noted))


async def judge_without_log(context: Context, fetched: Fetched) -> None:
    """Write what GitHub notes beside a failed job of which it has no log, as where the runner was lost."""
    async with context.store.read() as tx:
        job = await log_rows.find_job(tx, fetched.repository_id, fetched.object_id)
        ruleset = await _rules(tx, context.settings, fetched, job)
    if job is None or job["conclusion"] not in FAILED:
        return
    noted = judge_annotations(await read_annotations(context, fetched), ruleset, None)
    if noted is None or noted["rule"] is None:
        return
    rule, captures = noted["rule"], noted["captures"]
    verdict: ParsedVerdict = {
        **noted,
        "ruleset": ruleset.digest,
        "step": None,
        "signature": signature(rule, captures),
        "title": title(rule, captures),
    }
    async with context.store.transaction() as tx:
        if await log_rows.find_log(tx, fetched.repository_id, fetched.object_id):
            return
        await log_rows.store_log(tx, _log_row(tx, fetched, {**NO_LOG, "verdicts": [verdict]}, None))
        await _write(tx, await _job_of_verdict(tx, fetched, job), [verdict])


async def store_parsed(
    tx: Transaction, context: Context, fetched: Fetched, parsed: ParsedLog, blob: str | None
) -> None:
    """Write what was found in a log."""
    job = await log_rows.find_job(tx, fetched.repository_id, fetched.object_id)
    await log_rows.store_log(tx, _log_row(tx, fetched, parsed, blob))
    if not parsed["verdicts"]:
        return
    subject = await _job_of_verdict(tx, fetched, job)
    if parsed["verdicts"][0]["ruleset"] != (await _rules(tx, context.settings, fetched, job)).digest:
        raise RetryLater(RULES_CHANGED, after=1)  # else this log would not be looked at again
    await _write(tx, subject, parsed["verdicts"])
    metrics.VERDICTS.labels(parsed["verdicts"][0]["kind"]).inc()


async def _job_of_verdict(tx: Transaction, fetched: Fetched, job: WorkflowJobRow | None) -> JobOfVerdict:
    private = fetched.private or await private_failures.is_private(tx, fetched.repository_id)
    at = (job and job["completed_at"]) or (fetched.told and fetched.told["ended_at"]) or tx.now
    return {
        "repository_id": fetched.repository_id,
        "job_id": fetched.object_id,
        "family": log_rows.family_of(fetched.repository_id, private=private),
        "trusted": fetched.trusted,
        "change": None if fetched.trusted else await _change(tx, fetched, job),
        "at": at,
        "day": at // log_rows.DAY,
    }


async def replace_findings(tx: Transaction, before: VerdictRow, classified: Classified) -> None:
    """Write what other rules found in the log that a verdict is on."""
    await log_rows.store_first_error(tx, before["repository_id"], before["job_id"], classified["first_error"])
    known: Any = {name: value for name, value in before.items() if name in JobOfVerdict.__annotations__}
    await _write(tx, known, classified["verdicts"])


async def _write(tx: Transaction, job: JobOfVerdict, verdicts: list[ParsedVerdict]) -> None:
    """Write verdicts, and have everything that shows them follow."""
    repository_id, job_id = job["repository_id"], job["job_id"]
    found = [_verdict_row(verdict, job) for verdict in verdicts]
    before = await log_rows.verdicts_of_jobs(tx, repository_id, [job_id])
    if before and [{**row, "ruleset": found[0]["ruleset"]} for row in before] == found:
        await log_rows.move_verdicts(tx, repository_id, job_id, found[0]["ruleset"])
        return
    await log_rows.replace_verdicts(tx, repository_id, job_id, found, _titles(verdicts))
    await failed_jobs.request_publish_of(tx, repository_id, [job_id])
    await failure_kind.update_kind_of_job(tx, repository_id, job_id)
    first = found[0]
    await job_causes.write_line(
        tx, repository_id, job_id, kind=first["kind"], signature=first["signature"], line=first["line"]
    )


async def _rules(
    tx: Transaction, settings: Settings, fetched: Fetched, job: WorkflowJobRow | None
) -> Ruleset:
    """Return the rules for a job."""
    ruleset = await ruleset_rows.rules_in_force(tx, settings, fetched.repo)
    return ruleset.applied_to(fetched.repo, job["workflow_name"] if job else fetched.workflow)


def _verdict_row(found: ParsedVerdict, job: JobOfVerdict) -> VerdictRow:
    row: Any = {**found, **job, "current": True}
    del row["title"]
    return cast("VerdictRow", row)


def _titles(verdicts: list[ParsedVerdict]) -> dict[str, SignatureTitle]:
    return {
        found["signature"]: {
            "title": found["title"] or found["rule"],
            "rule": found["rule"],
            "kind": found["kind"],
        }
        for found in verdicts
        if found["signature"] and found["rule"]
    }


def _log_row(tx: Transaction, fetched: Fetched, parsed: ParsedLog, blob: str | None) -> LogRow:
    row: Any = {
        **parsed,
        "repository_id": fetched.repository_id,
        "job_id": fetched.object_id,
        "run_id": fetched.run_id,
        "run_attempt": fetched.run_attempt,
        "state": "parsed",
        "blob": blob,
        "fetched_at": tx.now,
        "head_sha": fetched.head_sha,
        "trusted": fetched.trusted,
    }
    del row["verdicts"]
    return cast("LogRow", row)


async def _change(tx: Transaction, fetched: Fetched, job: WorkflowJobRow | None) -> str:
    """Return what a run was about: the pull request where it is known, else its branch."""
    if told := fetched.told:
        branch = f"{fetched.repository_id}:{told['branch'] or told['head_sha']}"
        return f"{fetched.repo}#{told['pull']}" if told["pull"] else branch
    if pulls := await failed_jobs.pulls_of_uploads(tx, [-fetched.object_id]):
        repo, number = min(pulls)
        return f"{repo}#{number}"
    if pull := await failed_jobs.pull_of_run(tx, fetched.repo, fetched.run_id):
        repo, number = pull
        return f"{repo}#{number}"
    run = await log_rows.find_run(tx, fetched.repository_id, fetched.run_id, fetched.run_attempt)
    if run and run["pull_requests"]:
        return f"{fetched.repo}#{run['pull_requests'][0]}"
    branch = (job and job["head_branch"]) or fetched.head_sha
    return f"{(run and run['head_repository_id']) or fetched.repository_id}:{branch}"


RECEIVER = Receiver(
    store=store_parsed,
    answer=ParsedLog,
    options=parser_options,
    absent=judge_without_log,
    most_written=600 * MIB,
    blob_prefix="log",
)
