"""The receiver of parsed logs: the rules in force for a job, its parser's options, and findings as rows."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
import sqlalchemy as sa
import structlog

from bot.core import metrics
from bot.core.errors import GitHubRefused, OverBudget, RetryLater
from bot.db.rows import select
from bot.evidence.collect.receivers import MIB, Fetched, Receiver
from bot.evidence.logs import failed_jobs, follow_changes, rows
from bot.evidence.logs.feature import LogsSettings
from bot.evidence.logs.parse import rulesets
from bot.evidence.logs.parse.classify import judge_annotations
from bot.evidence.logs.parse.contract import ParserOptions, make_signature, make_title, parse_steps
from bot.evidence.logs.tables import (
    JobOfVerdict,
    LogRow,
    ParsedLog,
    RulesetRow,
    VerdictRow,
    ci_log,
    ci_ruleset,
)
from bot.ingest.tables import records
from bot.jobs import collection, job_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.logs.parse.rulesets import Ruleset
    from bot.evidence.logs.tables import LogFindings, ParsedVerdict, SignatureTitle
    from bot.ingest.record_rows import WorkflowJobRow

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
ANNOTATIONS_MOST = 20  # of one job
MESSAGE_MOST = 1_000  # characters

logger = structlog.get_logger("bot.evidence.logs.store_log")
OWN_RULES = ".github/ootbot-log-rules.toml"  # a repository's own rules, on its default branch
REPOSITORIES_MOST = 200  # that are asked for rules of their own

_parsed_rules = lru_cache(maxsize=64)(rulesets.parse_rules)  # pure: the same text is the same ruleset
_shipped_rules = lru_cache(maxsize=1)(rulesets.shipped_rules)


async def parser_options(context: Context, fetched: Fetched) -> Any:
    """Return the parser's options: the rules for this job, and its steps. Only failed jobs are classified."""
    async with context.store.read() as tx:
        job = await rows.find_job(tx, fetched.repository_id, fetched.object_id)
        failed = job["conclusion"] in FAILED if job else fetched.failed is not False
        chosen = await _rules_for_job(tx, context.settings, fetched, job) if failed else None
    steps = parse_steps(job["steps"] if job else None)
    noted = await read_annotations(context, fetched) if chosen else ()
    return msgspec.to_builtins(ParserOptions(ruleset=chosen, steps=steps, annotations=noted))


async def judge_without_log(context: Context, fetched: Fetched) -> None:
    """Write what GitHub notes beside a failed job that left no log, as after its runner was lost."""
    async with context.store.read() as tx:
        job = await rows.find_job(tx, fetched.repository_id, fetched.object_id)
        ruleset = await _rules_for_job(tx, context.settings, fetched, job)
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
        "signature": make_signature(rule, captures),
        "title": make_title(rule, captures),
    }
    async with context.store.transaction() as tx:
        if await rows.find_log(tx, fetched.repository_id, fetched.object_id):
            return
        await rows.store_log(tx, _log_row(tx, fetched, {**NO_LOG, "verdicts": [verdict]}, None))
        await _write_verdicts(tx, await _job_of_verdict(tx, fetched, job), [verdict])


async def store_parsed(
    tx: Transaction, context: Context, fetched: Fetched, parsed: ParsedLog, blob: str | None
) -> None:
    """Write the findings in a log."""
    job = await rows.find_job(tx, fetched.repository_id, fetched.object_id)
    await rows.store_log(tx, _log_row(tx, fetched, parsed, blob))
    if not parsed["verdicts"]:
        return
    subject = await _job_of_verdict(tx, fetched, job)
    if parsed["verdicts"][0]["ruleset"] != (await _rules_for_job(tx, context.settings, fetched, job)).digest:
        raise RetryLater(RULES_CHANGED, after=1)  # else this log would not be looked at again
    await _write_verdicts(tx, subject, parsed["verdicts"])
    metrics.VERDICTS.labels(parsed["verdicts"][0]["kind"]).inc()


async def _job_of_verdict(tx: Transaction, fetched: Fetched, job: WorkflowJobRow | None) -> JobOfVerdict:
    private = fetched.private or await follow_changes.is_private(tx, fetched.repository_id)
    at = (job and job["completed_at"]) or (fetched.told and fetched.told["ended_at"]) or tx.now
    return {
        "repository_id": fetched.repository_id,
        "job_id": fetched.object_id,
        "family": rows.family_of(fetched.repository_id, private=private),
        "trusted": fetched.trusted,
        "change": None if fetched.trusted else await _change_of_run(tx, fetched, job),
        "at": at,
        "day": at // rows.DAY,
    }


async def replace_findings(tx: Transaction, before: VerdictRow, classified: LogFindings) -> None:
    """Replace the findings in a log by those of other rules."""
    await rows.store_first_error(tx, before["repository_id"], before["job_id"], classified["first_error"])
    known: Any = {name: value for name, value in before.items() if name in JobOfVerdict.__annotations__}
    await _write_verdicts(tx, known, classified["verdicts"])


async def _write_verdicts(tx: Transaction, job: JobOfVerdict, verdicts: list[ParsedVerdict]) -> None:
    """Write verdicts, and update everything that shows them."""
    repository_id, job_id = job["repository_id"], job["job_id"]
    verdict_rows = [_verdict_row(verdict, job) for verdict in verdicts]
    before = await rows.verdicts_of_jobs(tx, repository_id, [job_id])
    if before and [{**row, "ruleset": verdict_rows[0]["ruleset"]} for row in before] == verdict_rows:
        await rows.move_verdicts(tx, repository_id, job_id, verdict_rows[0]["ruleset"])
        return
    await rows.replace_verdicts(tx, repository_id, job_id, verdict_rows, _titles(verdicts))
    await failed_jobs.request_publish_of_jobs(tx, repository_id, [job_id])
    await follow_changes.update_kind_of_job(tx, repository_id, job_id)
    first = verdict_rows[0]
    await job_cells.write_line(
        tx, repository_id, job_id, kind=first["kind"], signature=first["signature"], line=first["line"]
    )


async def _rules_for_job(
    tx: Transaction, settings: Settings, fetched: Fetched, job: WorkflowJobRow | None
) -> Ruleset:
    """Return the rules for a job."""
    ruleset = await rules_in_force(tx, settings, fetched.repo)
    return ruleset.applied_to(fetched.repo, job["workflow_name"] if job else fetched.workflow)


def _verdict_row(verdict: ParsedVerdict, job: JobOfVerdict) -> VerdictRow:
    row: Any = {**verdict, **job, "current": True}
    del row["title"]
    return cast("VerdictRow", row)


def _titles(verdicts: list[ParsedVerdict]) -> dict[str, SignatureTitle]:
    return {
        verdict["signature"]: {
            "title": verdict["title"] or verdict["rule"],
            "rule": verdict["rule"],
            "kind": verdict["kind"],
        }
        for verdict in verdicts
        if verdict["signature"] and verdict["rule"]
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


async def _change_of_run(tx: Transaction, fetched: Fetched, job: WorkflowJobRow | None) -> str:
    """Return the change that a run was about: its pull request if known, else its branch."""
    if told := fetched.told:
        branch = f"{fetched.repository_id}:{told['branch'] or told['head_sha']}"
        return f"{fetched.repo}#{told['pull']}" if told["pull"] else branch
    if pulls := await failed_jobs.pulls_of_uploads(tx, [-fetched.object_id]):
        repo, number = min(pulls)
        return f"{repo}#{number}"
    if pull := await failed_jobs.pull_of_run(tx, fetched.repo, fetched.run_id):
        repo, number = pull
        return f"{repo}#{number}"
    run = await rows.find_run(tx, fetched.repository_id, fetched.run_id, fetched.run_attempt)
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


async def read_annotations(context: Context, fetched: Fetched) -> tuple[str, ...]:
    """Return the errors that GitHub notes beside a job; none if it does not answer or the budget is spent.

    A job's check run has the job's id.
    """
    if fetched.source != "log":
        return ()
    client = context.app_for(fetched.repo).client(fetched.repo, checks="read")
    path = client.path("check-runs/{job}/annotations{?per_page}")
    values = {"job": str(fetched.object_id), "per_page": str(ANNOTATIONS_MOST)}
    try:
        await collection.spend_call(context, fetched.repo)
        annotations = await client.getitem(path, values)
    except (GitHubRefused, OverBudget, RetryLater) as error:
        logger.debug("annotations are not read", repo=fetched.repo, job=fetched.object_id, error=str(error))
        return ()
    return tuple(
        filter(
            None, map(_error_message, annotations[:ANNOTATIONS_MOST] if isinstance(annotations, list) else ())
        )
    )


def _error_message(annotation: Any) -> str:
    message = annotation.get("message") if isinstance(annotation, dict) else None
    if not isinstance(message, str) or annotation.get("annotation_level") != "failure":
        return ""
    return message.strip().split("\n", 1)[0][:MESSAGE_MOST]


def own_source(repo: str) -> str:
    """Return the source of a repository's own rules."""
    return f"{repo.casefold()}:{OWN_RULES}"


async def store_version(tx: Transaction, source: str, content: str, *, error: str | None, count: int) -> None:
    """Store the present version of a source; `error` says what is wrong with it."""
    digest = hashlib.sha256(f"{source}\0{content}\0{error}".encode()).hexdigest()[: rulesets.DIGEST_LENGTH]
    values = {
        "source": source,
        "content": content,
        "valid": error is None,
        "error": error,
        "rules": count,
        "loaded_at": tx.now,
    }
    statement = tx.insert(ci_ruleset).values(values | {"digest": digest})
    await tx.run(statement.on_conflict_do_update(index_elements=["digest"], set_=values))


async def newest_versions(tx: Transaction) -> list[RulesetRow]:
    """Return the version of every source that was read last, even an invalid one."""
    last = sa.select(ci_ruleset.c.source, sa.func.max(ci_ruleset.c.loaded_at).label("at"))
    read = last.group_by(ci_ruleset.c.source).subquery()
    same = sa.and_(ci_ruleset.c.source == read.c.source, ci_ruleset.c.loaded_at == read.c.at)
    query = select(RulesetRow, ci_ruleset).join(read, same).order_by(ci_ruleset.c.source)
    return await tx.fetch(query)


async def rules_in_force(tx: Transaction, settings: Settings, repo: str) -> Ruleset:
    """Return the rules for a repository's logs: the operator's, its own, and those of the program."""
    sources = [*settings.of(LogsSettings).ci_log_rules, own_source(repo)]
    query = select(RulesetRow, ci_ruleset).where(ci_ruleset.c.source.in_(sources), ci_ruleset.c.valid)
    valid = await tx.fetch(query.order_by(ci_ruleset.c.loaded_at))
    contents = {row["source"]: row["content"] for row in valid}
    stored = [_parsed_rules(contents[source].encode(), source) for source in sources if source in contents]
    return rulesets.merge_rulesets([*stored, _shipped_rules()])


async def ids_with_logs(tx: Transaction) -> list[int]:
    """Return the repositories with logs: few in very many rows, so each is looked up from the one before."""
    log = ci_log.c.repository_id
    each = sa.select(sa.func.min(log).label("id")).cte(recursive=True)
    following = sa.select(sa.func.min(log)).where(log > each.c.id).scalar_subquery()
    each = each.union_all(sa.select(following).where(each.c.id.is_not(None)))
    query = sa.select(each.c.id).where(each.c.id.is_not(None)).limit(REPOSITORIES_MOST)
    return list((await tx.run(query)).scalars())


async def repositories_with_logs(tx: Transaction) -> Sequence[str]:
    """Return the names of the repositories with logs."""
    repository = records["repository"].c
    query = sa.select(repository.full_name).where(
        repository.repository_id.in_(await ids_with_logs(tx)), repository.full_name.is_not(None)
    )
    return sorted((await tx.run(query)).scalars())
