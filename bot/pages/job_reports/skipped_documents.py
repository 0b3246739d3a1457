"""What was skipped of the files that jobs left, for the pages of runs and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.job_reports import documents
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.job_reports.tables import SourceRow
    from bot.web.blocks import JobSubject, RunSubject

FILES_SHOWN = 10  # files, and problems of each


async def show_run_documents(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return what was skipped of a run's files."""
    return _document_blocks(await documents.sources_of_run(tx, subject.repository_id, subject.run_id))


async def show_job_documents(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return what was skipped of a job's files."""
    sources = await documents.sources_of_run(tx, subject.repository_id, subject.run_id)
    return _document_blocks([source for source in sources if source["job_id"] == subject.job_id])


def _document_blocks(sources: Sequence[SourceRow]) -> list[Block]:
    flawed = [source for source in sources if source["problem_count"]]
    if not flawed:
        return []
    lines, details = [], []
    for source in flawed[:FILES_SHOWN]:
        used = "nothing of it was used" if not source["records"] else f"{source['records']:,} were used"
        lines.append(
            BlockLine(text=f"{source['artifact']}: {source['problem_count']:,} left out, {used}", tone="warn")
        )
        details += [
            BlockLine(text=f"{each['member']}, line {each['line']}: {each['reason']}")
            for each in source["problems"][:FILES_SHOWN]
        ]
    block = Block(
        heading="Left out of reports",
        lines=tuple(lines),
        folded=tuple(details),
        summary="What was wrong",
        last=True,
    )
    return [block]
