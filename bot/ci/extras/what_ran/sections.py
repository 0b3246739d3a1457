"""What ran, on the page of a run: jobs that ran little, what was left out on purpose, what selection missed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.ci.extras.what_ran import miss_rows
from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import exclusions, rows
from bot.ci.test_results.views import on_head
from bot.core.escaping import clean, shorten
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.db.transaction import Transaction
    from bot.web.blocks import Tone
    from bot.web.subjects import RunSubject

FAMILIES, SHOWN, NAME_MOST = 40, 10, 300


async def show_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return what a run tested, in short."""
    jobs = rows.newest_attempts(await rows.jobs_of_run(tx, subject.repository_id, subject.run_id))
    if not jobs:
        return []
    page = f"/{subject.repo}/run/{subject.run_id}/ran"
    lines = await _few(tx, subject.repository_id, jobs, page)
    left_out = await exclusions.files_of(tx, jobs)
    if left_out:
        lines.append(BlockLine(text=f"{len(left_out):,} files left out by selection", url=page, tone="idle"))
    for one in (await miss_rows.misses_of_run(tx, subject.repository_id, subject.run_id))[:SHOWN]:
        number = one.row["pr_number"]
        text = f"{one.test['name']} failed here, and #{number} had left {one.row['file']} out"
        address = f"/{subject.repo}/test/{identity.shown_digest(one.test['digest'])}"
        lines.append(BlockLine(text=_short(text), url=address, tone="bad"))
    ran = sum(job["tests"] - job["skipped"] for job in jobs)
    lines.append(BlockLine(text=f"{ran:,} tests ran: file by file", url=page))
    return [Block(heading="What ran", lines=tuple(lines))]


async def _few(tx: Transaction, repository_id: int, jobs: list[TestJobRow], page: str) -> list[BlockLine]:
    """Return the jobs that passed with far fewer tests than usual."""
    by_family: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for job in jobs:
        if not job["rerun_disabled"]:
            by_family[job["family"]].append(job)
    lines = []
    for family in sorted(by_family)[:FAMILIES]:
        little = await on_head.compare_family(tx, repository_id, family, by_family[family])
        if little:
            tone: Tone = "idle" if little.files else "warn"
            lines.append(BlockLine(text=_short(f"{family}: passed, but {little}"), url=page, tone=tone))
    return lines


def _short(text: str) -> str:
    return shorten(" ".join(clean(text).split()), NAME_MOST)
