"""What the page of a backend says below its jobs: its levels so far, and the runs that lowered its pass rate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.core.text import plural
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import lowering_rows
from bot.oot.pages.relay_criteria import read_shared
from bot.oot.results.private_names import read_private_names
from bot.oot.statistics.days import DAY
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.pages.lowering_rows import LoweringJob
    from bot.web.asked import Asked
    from bot.web.subjects import BackendPageSubject

WINDOW = 7  # days
SHOWN = 20
MOST_LEVELS = 20


async def show_backend(asked: Asked, subject: BackendPageSubject) -> list[Block]:
    """Return the history of its levels, and what degraded its numbers in the last week."""
    return [*await _levels(asked.tx, subject.repo), *await _lowering(asked, subject)]


async def _levels(tx: Transaction, repo: str) -> list[Block]:
    history = await allowlists.level_history(tx, repo)
    lines = tuple(
        BlockLine(
            text=f"{f'L{level}' if level else 'not listed'} since {datetime.fromtimestamp(since / 1000, UTC):%Y-%m-%d}"
        )
        for level, since in history[:MOST_LEVELS]
    )
    return [Block(heading="Levels so far", lines=lines, last=True)] if lines else []


async def _lowering(asked: Asked, subject: BackendPageSubject) -> list[Block]:
    tx = asked.tx
    since = tx.now - WINDOW * DAY
    listed = await allowlists.in_force(tx)
    entry = listed.find(subject.repo) if listed else None
    if entry is None:
        return []
    found = await lowering_rows.lowering_jobs(
        tx, subject.repo, since=since, upstreams=subject.upstreams, limit=SHOWN + 1
    )
    if not found:
        return []
    shared = await read_shared(asked, entry, since=since)
    private = await read_private_names(tx, asked.settings, {subject.repo})
    lines = [
        _line(private.of_row(job, subject.repo), upstreams=job["job_key"] in shared) for job in found[:SHOWN]
    ]
    if len(found) > SHOWN:
        lines.append(BlockLine(text=f"more than {plural(SHOWN, 'run')}: the CSV of its jobs has all"))
    return [Block(heading="What lowered its pass rate in the last 7 days", lines=tuple(lines), last=True)]


def _line(job: LoweringJob, *, upstreams: bool) -> BlockLine:
    about = f"#{job['pr_number']}" if job["pr_number"] else (job["head_sha"] or job["event_type"])[:10]
    end = (job["conclusion"] or "").replace("_", " ")
    words = f"{job['workflow_name']} / {job['job_name']} on {about}: {end}"
    if upstreams:
        words += "; upstream's own jobs fail the same tests there, so it does not count against its level"
    return BlockLine(text=words, url=job["workflow_run_url"], tone="idle" if upstreams else "bad")
