"""What logs add to the pages of jobs, runs and commits: the lines that say why jobs failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.escaping import clean
from bot.core.text import plural
from bot.evidence.logs import failed_jobs, failure_costs, known_failures, rows
from bot.evidence.logs.failure_lines import job_page, line_url, log_page, place_in_log, shorten_line
from bot.jobs.job_cells import is_elsewhere
from bot.web.blocks import Block, BlockLine, Excerpt

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.evidence.logs.tables import VerdictRow
    from bot.web.blocks import CellSubject, JobSubject, RunSubject

EXCERPT_LINE = 500  # characters of a line around the verdict
SHOWN = 30  # jobs of a run
HEADING = "Why jobs failed"


async def job_section(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return the verdicts on a job, and where to read its log."""
    log = await rows.find_log(tx, subject.repository_id, subject.job_id)
    if log is None:
        return []
    page = log_page(subject.repo, subject.job_id)
    verdicts = await rows.verdicts_of_jobs(tx, subject.repository_id, [subject.job_id])
    lines = []
    for verdict in verdicts:
        lines.append(_verdict_line(verdict, page))
        issue = verdict["signature"] and await failure_costs.tied_issue(
            tx, verdict["signature"], verdict["family"]
        )
        if issue and verdict["rank"] == 0:
            lines.append(BlockLine(text=f"known issue: {issue}", url=issue, tone="warn"))
        if hint := verdict["hint"]:
            lines.append(BlockLine(text=f"hint: {shorten_line(hint)}", url=hint))
    lines += await _judgement_lines(tx, subject)
    if first := log["first_error"]:
        number, text = int(first["line_num"]), str(first["line"])
        lines.append(
            BlockLine(
                text=f"first build error, line {number:,}: {shorten_line(text)}", url=line_url(page, number)
            )
        )
    if log["blob"] is not None:
        lines.append(BlockLine(text=f"the log: {log['lines']:,} lines, {log['bytes']:,} bytes", url=page))
        lines.append(BlockLine(text="the log as plain text", url=f"{page}.txt"))
    heading = "Why it failed" if verdicts else "Log"
    return [Block(heading=heading, lines=tuple(lines), excerpt=_excerpt(verdicts, page))]


async def job_json(tx: Transaction, subject: JobSubject) -> dict[str, Any]:
    """Return the number of lines and the verdicts of a job's log, like `ootbot logs explain --json`."""
    log = await rows.find_log(tx, subject.repository_id, subject.job_id)
    verdicts = await rows.verdicts_of_jobs(tx, subject.repository_id, [subject.job_id])
    return {
        "lines": log["lines"] if log else None,
        "verdicts": [verdict_json(verdict) for verdict in verdicts],
    }


async def cell_lines(tx: Transaction, subject: CellSubject) -> dict[int, BlockLine]:
    """Return links to the logs of jobs on other CIs; those of GitHub's jobs are on the jobs' pages."""
    wanted = [job_id for job_id in subject.job_ids if is_elsewhere(job_id)]
    lengths = await rows.lengths_of_logs(tx, subject.repository_id, wanted) if wanted else {}
    return {
        job_id: BlockLine(text=f"its log: {plural(lines, 'line')}", url=log_page(subject.repo, job_id))
        for job_id, lines in lengths.items()
    }


async def run_section(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return why jobs of a run failed."""
    failures = await failed_jobs.failures_on_run(tx, subject.repository_id, subject.run_id, limit=SHOWN + 1)
    lines = [_failure_line(failure) for failure in failures[:SHOWN]]
    if len(failures) > SHOWN:
        lines.append(BlockLine(text="and more"))
    if failures and (sha := await failed_jobs.commit_of_run(tx, subject.repository_id, subject.run_id)):
        url = f"/{subject.repo}/commit/{sha}/logs?run={subject.run_id}"
        lines.append(BlockLine(text="search the logs of this run", url=url))
    return [Block(heading=HEADING, lines=tuple(lines))] if lines else []


def verdict_json(verdict: VerdictRow) -> dict[str, Any]:
    """Return a verdict as JSON shows it."""
    shown = ("rank", "rule", "kind", "line", "line_num", "captures", "context", "step", "hint", "signature")
    row: dict[str, Any] = {**verdict}
    return {name: row[name] for name in shown}


async def _judgement_lines(tx: Transaction, subject: JobSubject) -> list[BlockLine]:
    """Return what is known of the failure elsewhere, with the evidence; it need not be the cause."""
    failed = await failed_jobs.failure_of_job(tx, subject.repository_id, subject.job_id)
    if failed is None:
        return []
    head = await known_failures.upstream_head(tx, failed)
    judgements = await known_failures.judge_failures(tx, subject.settings, head, [failed]) if head else {}
    return [
        BlockLine(text=shorten_line(word.text), url=word.url, tone=word.tone) for word in judgements.values()
    ]


def _excerpt(verdicts: list[VerdictRow], page: str) -> Excerpt | None:
    """Return the lines around the verdict, which are kept longer than the log."""
    first = next((verdict for verdict in verdicts if verdict["rank"] == 0 and verdict["excerpt_from"]), None)
    if first is None or not first["excerpt"]:
        return None
    return Excerpt(
        page=page,
        first=first["excerpt_from"] or 1,
        lines=tuple(clean(text)[:EXCERPT_LINE] for text in first["excerpt"]),
        marked=first["line_num"] or 0,
    )


def _verdict_line(verdict: VerdictRow, page: str) -> BlockLine:
    if verdict["rule"] is None:
        return BlockLine(text="no rule matches a line of the log", tone="idle")
    place = place_in_log(verdict["line_num"], verdict["step"])
    words = f"{verdict['kind']} · {shorten_line(verdict['line'] or '')} · {place}"
    return BlockLine(
        text=words, url=line_url(page, verdict["line_num"]), tone="bad" if verdict["rank"] == 0 else "idle"
    )


def _failure_line(failed: FailedJob) -> BlockLine:
    if not failed["public"]:
        return BlockLine(text="the log is private", tone="idle")
    name, page = shorten_line(failed["name"] or "job"), job_page(failed["repo"], failed["job_id"])
    if failed["rule"] is None:
        return BlockLine(text=f"{name}: no rule matches", url=page, tone="idle")
    place = place_in_log(failed["line_num"], failed["step"])
    text = f"{name}: {failed['kind']} · {shorten_line(failed['line'] or '')} · {place}"
    return BlockLine(text=text, url=page, tone="bad")
