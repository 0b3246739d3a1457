"""Searching for runs and jobs by the numbers that GitHub gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.store import runs
from bot.ingest import record_reads
from bot.web import access
from bot.web.search import Hit

if TYPE_CHECKING:
    from bot.web.asked import Asked
    from bot.web.search import Words


async def find_hits(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return the run or the job that has a number."""
    if words.number is None:
        return []
    private = access.reads_private(asked.request)
    shown = await record_reads.shown_repositories(asked.tx, asked.hidden, private=private)
    job = await runs.find_job(asked.tx, shown.keys(), words.job or words.number)
    hits = []
    if job and job["repository_id"] in shown:
        repo = shown[job["repository_id"]]
        hits.append(
            Hit(kind="job", title=job["name"] or "", path=f"/{repo}/job/{job['id']}", repo=repo, exact=True)
        )
    found = await runs.attempts_of_run(asked.tx, shown.keys(), words.number) if not words.job else []
    for run in found[:1]:
        repo = shown[run["repository_id"]]
        title = f"{run['name'] or ''} #{run['run_number'] or ''}"
        hits.append(Hit(kind="run", title=title, path=f"/{repo}/run/{run['id']}", repo=repo, exact=True))
    return hits[:limit]
