"""Searching for commits, branches and jobs of repositories' own CI."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from bot.ci.trunk.store import commit_words, rows
from bot.core.escaping import shorten
from bot.ingest import record_reads
from bot.web import access
from bot.web.search import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.trunk.tables import ColumnRow, CommitRow
    from bot.web.asked import Asked
    from bot.web.search import Words

JOBS = 100  # with their shards


async def find_hits(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return commits, branches and jobs."""
    private = access.reads_private(asked.request)
    shown = await record_reads.shown_repositories(asked.tx, asked.hidden, private=private)
    return [
        *await _commits(asked, words, shown, limit),
        *await _branches(asked, words, shown, limit),
        *await _jobs(asked, words, shown, limit),
    ]


async def _commits(asked: Asked, words: Words, shown: Mapping[int, str], limit: int) -> list[Hit]:
    if words.sha:
        found = await commit_words.commits_by_sha(asked.tx, shown.keys(), words.sha, limit=limit)
    elif words.number is None:
        found = await commit_words.commits_by_words(asked.tx, shown.keys(), words.text, limit=limit)
    else:
        return []
    return [_commit(row, shown[row["repository_id"]], words) for row in found]


def _commit(row: CommitRow, repo: str, words: Words) -> Hit:
    by = f"by {row['author']}" if row["author"] else ""
    return Hit(
        kind="commit",
        title=f"{row['sha'][:10]} {row['title']}",
        path=f"/{repo}/commit/{row['sha']}",
        repo=repo,
        detail=", ".join(one for one in (by, f"on {row['branch']}") if one),
        exact=words.sha == row["sha"],
    )


async def _branches(asked: Asked, words: Words, shown: Mapping[int, str], limit: int) -> list[Hit]:
    found = await commit_words.branches_by_name(asked.tx, shown.keys(), words.text, limit=limit)
    return [
        Hit(
            kind="branch",
            title=branch,
            path=f"/hud/{shown[owner]}/{quote(branch)}",
            repo=shown[owner],
            exact=branch.casefold() == words.folded,
        )
        for owner, branch in found
    ]


async def _jobs(asked: Asked, words: Words, shown: Mapping[int, str], limit: int) -> list[Hit]:
    if words.number is not None:
        return []
    found = await commit_words.jobs_by_name(asked.tx, shown.keys(), words.text.split()[:8], limit=JOBS)
    unsharded: dict[tuple[object, ...], ColumnRow] = {}
    for row in sorted(found, key=lambda row: len(row["job"])):
        unsharded.setdefault((row["repository_id"], row["workflow"], row["base_name"], row["config"]), row)
    return [await _job(asked, row, shown[row["repository_id"]]) for row in list(unsharded.values())[:limit]]


async def _job(asked: Asked, row: ColumnRow, repo: str) -> Hit:
    """Return the grid of the default branch with the columns of a job; its pages are those of its runs."""
    known = await rows.repository(asked.tx, {row["repository_id"]})
    branch = (known and known["default_branch"]) or "main"
    query = urlencode({"name": shorten(row["job"], 200)})
    return Hit(
        kind="job",
        title=f"{row['workflow']} / {row['job']}",
        path=f"/hud/{repo}/{quote(branch)}?{query}",
        repo=repo,
        detail=f"on {branch}",
    )
