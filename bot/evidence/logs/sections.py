"""What logs add to the pages of jobs, pull requests and commits: the lines that say why jobs failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.escaping import clean
from bot.core.text import plural
from bot.evidence.logs import failed_jobs, failure_costs, known_failures, rows
from bot.evidence.logs.known_failures import UpstreamHead
from bot.ingest import repositories
from bot.jobs.job_cells import is_elsewhere
from bot.web.blocks import Block, BlockLine, Excerpt, JobLine
from bot.web.failures import Failures, FailureStanding, JobKey, JobRemark, ReasonLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.evidence.logs.known_failures import Judgement
    from bot.evidence.logs.tables import VerdictRow
    from bot.web.blocks import BackendsSubject, CellSubject, JobSubject, RunSubject
    from bot.web.failures import FailuresSubject

LINE_MOST = 300  # characters shown of a line
EXCERPT_LINE = 500  # of a line around the verdict
STEP_MOST = 80  # characters of a step's name
SHOWN = 30  # jobs of one section
LISTED = 200  # jobs of upstream on a commit, and as many of backends
INFRA = "infra"  # the kind of failure that is the machine's
HEADING = "Why jobs failed"


async def job_section(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return the verdicts on a job, and where to read its log."""
    log = await rows.find_log(tx, subject.repository_id, subject.job_id)
    if log is None:
        return []
    page = log_page(subject.repo, subject.job_id)
    found = await rows.verdicts_of_jobs(tx, subject.repository_id, [subject.job_id])
    lines = []
    for verdict in found:
        lines.append(_verdict_line(verdict, page))
        issue = verdict["signature"] and await failure_costs.tied_issue(
            tx, verdict["signature"], verdict["family"]
        )
        if issue and verdict["rank"] == 0:
            lines.append(BlockLine(text=f"known issue: {issue}", url=issue, tone="warn"))
        if hint := verdict["hint"]:
            lines.append(BlockLine(text=f"hint: {_short(hint)}", url=hint))
    lines += await _judgement_lines(tx, subject)
    if first := log["first_error"]:
        number, text = int(first["line_num"]), str(first["line"])
        lines.append(
            BlockLine(text=f"first build error, line {number:,}: {_short(text)}", url=_line_url(page, number))
        )
    if log["blob"] is not None:
        lines.append(BlockLine(text=f"the log: {log['lines']:,} lines, {log['bytes']:,} bytes", url=page))
        lines.append(BlockLine(text="the log as plain text", url=f"{page}.txt"))
    heading = "Why it failed" if found else "Log"
    return [Block(heading=heading, lines=tuple(lines), excerpt=_excerpt(found, page))]


async def job_json(tx: Transaction, subject: JobSubject) -> dict[str, Any]:
    """Return the number of lines and the verdicts of a job's log, as `ootbot logs explain --json` has them."""
    log = await rows.find_log(tx, subject.repository_id, subject.job_id)
    found = await rows.verdicts_of_jobs(tx, subject.repository_id, [subject.job_id])
    return {
        "lines": log["lines"] if log else None,
        "verdicts": [verdict_json(verdict) for verdict in found],
    }


async def find_failures(tx: Transaction, subject: FailuresSubject) -> Failures:
    """Return why jobs failed on a commit, upstream's own and those of backends, and whether that is known elsewhere."""
    own = await failed_jobs.failures_on_commit(
        tx, await repositories.read_ids(tx, subject.repo) if subject.own else (), subject.sha, limit=LISTED
    )
    backends = await failed_jobs.failures_of_backends(tx, subject.repo, subject.sha, limit=LISTED)
    shown = [
        one for one in (*own, *backends) if one["public"]
    ]  # what private jobs are called is private, too
    head = UpstreamHead(subject.repo, subject.sha)
    words = await known_failures.judge_failures(tx, subject.settings, head, shown)
    remarks = [
        _remark(one, subject, words.get((one["repository_id"], one["job_id"])), alone=one in backends)
        for one in shown
    ]
    return Failures(jobs=remarks, links=[_search_link(subject.repo, subject.sha)] if shown else ())


async def cell_lines(tx: Transaction, subject: CellSubject) -> dict[int, BlockLine]:
    """Return where the logs of other CIs' jobs are: those of GitHub's are on the jobs' pages."""
    wanted = [one for one in subject.job_ids if is_elsewhere(one)]
    found = await rows.lengths_of_logs(tx, subject.repository_id, wanted) if wanted else {}
    return {
        job_id: BlockLine(text=f"its log: {plural(lines, 'line')}", url=log_page(subject.repo, job_id))
        for job_id, lines in found.items()
    }


async def run_section(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return why jobs of a run failed."""
    found = await failed_jobs.failures_on_run(tx, subject.repository_id, subject.run_id, limit=SHOWN + 1)
    lines = [_failure_line(one) for one in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(BlockLine(text="and more"))
    if found and (sha := await failed_jobs.commit_of_run(tx, subject.repository_id, subject.run_id)):
        url = f"/{subject.repo}/commit/{sha}/logs?run={subject.run_id}"
        lines.append(BlockLine(text="search the logs of this run", url=url))
    return [Block(heading=HEADING, lines=tuple(lines))] if lines else []


async def backend_lines(tx: Transaction, subject: BackendsSubject) -> dict[str, list[JobLine]]:
    """Return the lines that say why jobs of backends' failed runs failed, by backend in lower case."""
    found = await failed_jobs.failures_by_backend(tx, subject.runs, limit=SHOWN)
    return {
        name: [_job_line(one, subject.url) for one in several if one["rule"] is not None or not one["public"]]
        for name, several in found.items()
    }


def verdict_json(verdict: VerdictRow) -> dict[str, Any]:
    """Return a verdict as JSON shows it."""
    shown = ("rank", "rule", "kind", "line", "line_num", "captures", "context", "step", "hint", "signature")
    row: dict[str, Any] = {**verdict}
    return {name: row[name] for name in shown}


def log_page(repo: str, job_id: int) -> str:
    """Return the page of a job's log."""
    return f"{job_page(repo, job_id)}/log"


def job_page(repo: str, job_id: int) -> str:
    """Return the page of a job of GitHub's or of another CI, or of a log that a backend uploaded."""
    if job_id > 0:
        return f"/{repo}/job/{job_id}"
    return f"/{repo}/{'other-job' if is_elsewhere(job_id) else 'upload'}/{-job_id}"


async def _judgement_lines(tx: Transaction, subject: JobSubject) -> list[BlockLine]:
    """Return what is known of the failure elsewhere, with what shows it; it need not be the cause."""
    failed = await failed_jobs.failure_of_job(tx, subject.repository_id, subject.job_id)
    if failed is None:
        return []
    head = await known_failures.upstream_head(tx, failed)
    found = await known_failures.judge_failures(tx, subject.settings, head, [failed]) if head else {}
    return [BlockLine(text=_short(word.text), url=word.url, tone=word.tone) for word in found.values()]


def _search_link(repo: str, sha: str) -> BlockLine:
    return BlockLine(text="search the logs of this commit", url=f"/{repo}/commit/{sha}/logs")


def _excerpt(found: list[VerdictRow], page: str) -> Excerpt | None:
    """Return the lines around the verdict, which are kept longer than the log."""
    first = next((one for one in found if one["rank"] == 0 and one["excerpt_from"]), None)
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
    place = _place(verdict["line_num"], verdict["step"])
    words = f"{verdict['kind']} · {_short(verdict['line'] or '')} · {place}"
    return BlockLine(
        text=words, url=_line_url(page, verdict["line_num"]), tone="bad" if verdict["rank"] == 0 else "idle"
    )


def _failure_line(failed: FailedJob) -> BlockLine:
    if not failed["public"]:
        return BlockLine(text="the log is private", tone="idle")
    name, page = _short(failed["name"] or "job"), job_page(failed["repo"], failed["job_id"])
    if failed["rule"] is None:
        return BlockLine(text=f"{name}: no rule matches", url=page, tone="idle")
    place = _place(failed["line_num"], failed["step"])
    text = f"{name}: {failed['kind']} · {_short(failed['line'] or '')} · {place}"
    return BlockLine(text=text, url=page, tone="bad")


def _remark(failed: FailedJob, subject: FailuresSubject, word: Judgement | None, *, alone: bool) -> JobRemark:
    number, known = failed["line_num"], failed["rule"] is not None
    line = ReasonLine(
        kind=failed["kind"] if known else "",
        text=_short(failed["line"] or "") if known else "",
        place=_place(number, failed["step"]) if known else "the log: no rule matches a line of it",
        url=_line_url(log_page(failed["repo"], failed["job_id"]), number),
        page=job_page(failed["repo"], failed["job_id"]),
        infra=known and failed["kind"] == INFRA,
    )
    standing = FailureStanding(word=word.word, why=word.why, url=word.url, tone=word.tone) if word else None
    return JobRemark(job=_job_key(failed, subject), line=line, standing=standing, alone=alone)


def _job_key(failed: FailedJob, subject: FailuresSubject) -> JobKey:
    if is_elsewhere(failed["job_id"]) and (key := subject.upstream_jobs.get(failed["job_id"])):
        return key
    return JobKey(failed["repo"].lower(), failed["run_id"], failed["run_attempt"], failed["name"] or "")


def _job_line(failed: FailedJob, url: str) -> JobLine:
    key: Any = {
        "run_id": failed["run_id"],
        "run_attempt": failed["run_attempt"],
        "job": failed["name"] or "",
    }
    if not failed["public"]:
        return JobLine(**key, words="the log is private")
    number = failed["line_num"]
    return JobLine(
        **key,
        words=failed["kind"],
        code=_short(failed["line"] or ""),
        place=_place(number, failed["step"]),
        url=url + _line_url(log_page(failed["repo"], failed["job_id"]), number),
    )


def _in_step(step: str | None) -> str:
    return f" · in {_short(step)[:STEP_MOST]}" if step else ""


def _place(line: int | None, step: str | None) -> str:
    return f"line {line:,}{_in_step(step)}" if line else "noted by GitHub beside the job"


def _line_url(page: str, line: int | None) -> str:
    return f"{page}?line={line}#L{line}" if line else page.removesuffix("/log")


def _short(text: str) -> str:
    shown = clean(text)
    return shown if len(shown) <= LINE_MOST else shown[: LINE_MOST - 1] + "…"
