"""What could not be used of the files that jobs left, on the pages of runs and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras import source_rows
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.extras.tables import SourceRow
    from bot.db.transaction import Transaction
    from bot.web.subjects import JobSubject, RunSubject

SHOWN = 10  # files, and problems of each


async def show_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return what was left out of a run's files."""
    return _blocks(await source_rows.sources_of_run(tx, subject.repository_id, subject.run_id))


async def show_job(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return what was left out of a job's files."""
    found = await source_rows.sources_of_run(tx, subject.repository_id, subject.run_id)
    return _blocks([one for one in found if one["job_id"] == subject.job_id])


def _blocks(found: Sequence[SourceRow]) -> list[Block]:
    flawed = [one for one in found if one["problem_count"]]
    if not flawed:
        return []
    lines, details = [], []
    for one in flawed[:SHOWN]:
        used = "nothing of it was used" if not one["records"] else f"{one['records']:,} were used"
        lines.append(
            BlockLine(text=f"{one['artifact']}: {one['problem_count']:,} left out, {used}", tone="warn")
        )
        details += [
            BlockLine(text=f"{each['member']}, line {each['line']}: {each['reason']}")
            for each in one["problems"][:SHOWN]
        ]
    block = Block(
        heading="Left out of reports",
        lines=tuple(lines),
        folded=tuple(details),
        summary="What was wrong",
        last=True,
    )
    return [block]
