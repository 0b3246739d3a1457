"""What logs add to the pages of jobs, pull requests and commits: the lines that say why jobs failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.logs import failure_rows, known, rows
from bot.core.escaping import clean
from bot.ingest import watched
from bot.web.blocks import Block, BlockLine, JobLine

if TYPE_CHECKING:
    from bot.ci.logs.rows import FailedJob, VerdictRow
    from bot.db.transaction import Transaction
    from bot.web.blocks import BackendSubject, CommitSubject, JobSubject, PullSubject

LINE_MOST = 300  # characters shown of a line
SHOWN = 30  # jobs of one section
HEADING = "Why jobs failed"


async def of_job(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return the verdicts on a job, and where to read its log."""
    log = await rows.log(tx, subject.repository_id, subject.job_id)
    if log is None:
        return []
    page = log_page(subject.repo, subject.job_id)
    found = await rows.verdicts(tx, subject.repository_id, [subject.job_id])
    lines = []
    for verdict in found:
        lines.append(_of_verdict(verdict, page))
        issue = verdict["signature"] and await failure_rows.issue(tx, verdict["signature"])
        if issue and verdict["rank"] == 0:
            lines.append(BlockLine(text=f"known issue: {issue}", url=issue, tone="warn"))
        if hint := verdict["hint"]:
            lines.append(BlockLine(text=f"hint: {_short(hint)}", url=hint))
    lines += await _known(tx, subject, found)
    if first := log["first_error"]:
        number, text = int(first["line_num"]), str(first["line"])
        lines.append(
            BlockLine(text=f"first build error, line {number:,}: {_short(text)}", url=_at(page, number))
        )
    lines.append(BlockLine(text=f"the log: {log['lines']:,} lines, {log['bytes']:,} bytes", url=page))
    return [Block(heading="Why it failed" if found else "Log", lines=tuple(lines))]


async def job_json(tx: Transaction, subject: JobSubject) -> dict[str, Any]:
    """Return the number of lines and the verdicts of a job's log, as `ootbot logs explain --json` has them."""
    log = await rows.log(tx, subject.repository_id, subject.job_id)
    found = await rows.verdicts(tx, subject.repository_id, [subject.job_id])
    return {
        "lines": log["lines"] if log else None,
        "verdicts": [as_json(verdict) for verdict in found],
    }


async def of_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return why jobs failed on the shown head, upstream's own and those of backends."""
    return [] if subject.head_sha is None else await _of_head(tx, subject.repo, subject.head_sha)


async def of_commit(tx: Transaction, subject: CommitSubject) -> list[Block]:
    """Return why jobs failed on a commit, upstream's own and those of backends."""
    return await _of_head(tx, subject.repo, subject.sha)


async def of_backend(tx: Transaction, subject: BackendSubject) -> list[JobLine]:
    """Return the lines that say why jobs of a backend's failed runs failed."""
    found = await rows.failed_of_runs(tx, [subject.repo], rows.run_keys(subject.runs), limit=SHOWN)
    return [_job_line(one, subject.url) for one in found if one["rule"] is not None or not one["public"]]


def as_json(verdict: VerdictRow) -> dict[str, Any]:
    """Return a verdict as JSON shows it."""
    shown = ("rank", "rule", "kind", "line", "line_num", "captures", "context", "step", "hint", "signature")
    row: dict[str, Any] = {**verdict}
    return {name: row[name] for name in shown}


def log_page(repo: str, job_id: int) -> str:
    """Return the page of a job's log."""
    return f"/{repo}/job/{job_id}/log"


async def _known(tx: Transaction, subject: JobSubject, found: list[VerdictRow]) -> list[BlockLine]:
    """Return that the branch fails alike, with the job that shows it; whether that is the cause, nobody says."""
    job = await rows.job(tx, subject.repository_id, subject.job_id) if found else None
    workflow = job["workflow_name"] if job else None
    same = await known.elsewhere(tx, found[0], name=subject.name, workflow=workflow) if found else None
    if same is None:
        return []
    words = f"known: the same job failed with the same captures on {same.branch} at {same.sha[:12]}"
    return [BlockLine(text=_short(words), url=f"/{subject.repo}/job/{same.job_id}", tone="warn")]


async def _of_head(tx: Transaction, repo: str, sha: str) -> list[Block]:
    own = await rows.failed_on(tx, await watched.ids(tx, repo), sha, limit=SHOWN + 1)
    backends = await rows.failed_of_backends(tx, repo, sha, limit=SHOWN + 1)
    lines = [_of_failed(one, repo) for one in own[:SHOWN]] + [
        _of_failed(one, repo) for one in backends[:SHOWN]
    ]
    if len(own) > SHOWN or len(backends) > SHOWN:
        lines.append(BlockLine(text="and more"))
    if any(one["public"] for one in (*own, *backends)):
        lines.append(BlockLine(text="search the logs of this commit", url=f"/{repo}/commit/{sha}/logs"))
    return [Block(heading=HEADING, lines=tuple(lines))] if lines else []


def _of_verdict(verdict: VerdictRow, page: str) -> BlockLine:
    if verdict["rule"] is None or verdict["line_num"] is None:
        return BlockLine(text="no rule matches a line of the log", tone="idle")
    step = f" · in {_short(verdict['step'])}" if verdict["step"] else ""
    words = f"{verdict['kind']} · {_short(verdict['line'] or '')} · line {verdict['line_num']:,}{step}"
    return BlockLine(
        text=words, url=_at(page, verdict["line_num"]), tone="bad" if verdict["rank"] == 0 else "idle"
    )


def _of_failed(failed: FailedJob, repo: str) -> BlockLine:
    whose = "" if failed["repo"].casefold() == repo.casefold() else f"{failed['repo']} · "
    name = _short(failed["name"] or "job")
    if not failed["public"]:
        return BlockLine(text=f"{whose}{name}: the log is private", tone="idle")
    if failed["rule"] is None or failed["line_num"] is None:
        return BlockLine(
            text=f"{whose}{name}: no rule matches",
            url=f"/{failed['repo']}/job/{failed['job_id']}",
            tone="idle",
        )
    text = f"{whose}{name}: {failed['kind']} · {_short(failed['line'] or '')} · line {failed['line_num']:,}"
    return BlockLine(text=text, url=f"/{failed['repo']}/job/{failed['job_id']}", tone="bad")


def _job_line(failed: FailedJob, url: str) -> JobLine:
    key: Any = {
        "run_id": str(failed["run_id"]),
        "run_attempt": failed["run_attempt"],
        "job": failed["name"] or "",
    }
    if not failed["public"]:
        return JobLine(**key, words="the log is private")
    number = failed["line_num"] or 1
    return JobLine(
        **key,
        words=failed["kind"],
        code=_short(failed["line"] or ""),
        place=f"line {number:,}",
        url=url + _at(log_page(failed["repo"], failed["job_id"]), number),
    )


def _at(page: str, line: int) -> str:
    return f"{page}?line={line}#L{line}"


def _short(text: str) -> str:
    shown = clean(text)
    return shown if len(shown) <= LINE_MOST else shown[: LINE_MOST - 1] + "…"
