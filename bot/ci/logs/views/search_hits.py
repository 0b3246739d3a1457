"""Searching for failures by signature and title, and the link that searches the logs themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.ci.collect import job_reads
from bot.ci.logs.store import failure_words
from bot.core.text import plural
from bot.web.search import Hit

if TYPE_CHECKING:
    from bot.ci.logs.tables import SignatureRow
    from bot.web.asked import Asked
    from bot.web.search import Words


async def find_hits(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return failures, and links to the search of upstream's logs."""
    found: list[SignatureRow] = []
    if words.sha:
        found = await failure_words.failures_by_signature(asked.tx, words.sha, limit=limit)
    elif words.number is None:
        found = await failure_words.failures_by_words(asked.tx, words.text, limit=limit)
    logs = [
        _logs(repo, words.text)
        for repo in asked.settings.upstream_repo
        if await job_reads.visible_to(asked, repo)
    ]
    return [*(_failure(row, words) for row in found), *logs]


def _failure(row: SignatureRow, words: Words) -> Hit:
    return Hit(
        kind="failure",
        title=row["title"],
        path=f"/failures/{row['signature']}",
        detail=f"{row['kind']}, {plural(row['jobs_total'], 'job')}",
        exact=row["signature"] == words.sha,
    )


def _logs(repo: str, text: str) -> Hit:
    pattern = re.sub(r"([^\w\s])", r"\\\1", text)  # so that every character stands for itself
    query = urlencode({"q": pattern, "days": 7})
    return Hit(kind="logs", title=f"Search logs for “{text}”", path=f"/{repo}/logs?{query}", repo=repo)
