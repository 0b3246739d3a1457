"""Searching for repositories, backends, devices, their jobs and pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.commands.described import describe_commands
from bot.oot.pages import pull_rows, pull_words
from bot.oot.pages.visible_names import read_names
from bot.oot.statistics.job_matrix import anchor_of_job, name_shards
from bot.oot.statistics.store.job_names import find_names
from bot.web import access
from bot.web.search import Hit
from bot.word_index import rows as word_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ingest.rows import PullRow
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.statistics.tables import JobNameRow
    from bot.web.asked import Asked
    from bot.web.search import Words

JOBS = 100  # of backends, with their shards
WORDS_MOST = 8


async def find_hits(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return upstream repositories, backends and their jobs, pull requests and commands in comments."""
    private = access.reads_private(asked.request)
    shown = await record_reads.shown_repositories(asked.tx, asked.hidden, private=private)
    return [
        *_upstreams(asked, words),
        *await _backends(asked, words, limit),
        *await _jobs(asked, words, limit),
        *await _pulls(asked, words, shown, limit),
        *_commands(asked, words),
    ]


def _upstreams(asked: Asked, words: Words) -> list[Hit]:
    return [
        Hit(kind="repository", title=repo, path=f"/{repo}", repo=repo, exact=repo.casefold() == words.folded)
        for repo in asked.settings.upstream_repo
        if words.folded in repo.casefold() and not asked.hidden.has(repo)
    ]


def _commands(asked: Asked, words: Words) -> list[Hit]:
    """Return the command of this name, with `/oot` all that fit."""
    said = words.folded.removeprefix("/oot").strip()
    every = words.folded.startswith("/oot")
    verb = said.partition(" ")[0]
    return [
        Hit(
            kind="command",
            title=f"/oot {one.usage}",
            path=f"/oot/commands#{one.verb}",
            detail=one.does,
            exact=every and verb == one.verb,
        )
        for one in describe_commands(asked.context.features)
        if verb == one.verb or (every and one.verb.startswith(verb))
    ]


async def _backends(asked: Asked, words: Words, limit: int) -> list[Hit]:
    if all(map(asked.hidden.has, asked.settings.upstream_repo)):
        return []
    allowlist = await allowlists.in_force(asked.tx)
    entries = [one for one in allowlist.entries if _matches(one, words)] if allowlist else []
    return [_backend(one, words) for one in entries[:limit]]


def _matches(entry: Entry, words: Words) -> bool:
    names = " ".join((entry.repo, entry.device or "", *entry.aka, *entry.oncalls)).casefold()
    return all(word in names for word in words.folded.removeprefix("@").split())


def _backend(entry: Entry, words: Words) -> Hit:
    device = f"device {entry.device}" if entry.device else ""
    oncalls = f"on call: {', '.join(entry.oncalls)}" if entry.oncalls else ""
    return Hit(
        kind="backend",
        title=entry.device or entry.repo,
        path=f"/oot/{entry.repo}",
        repo=entry.repo if entry.device else "",
        detail=", ".join(one for one in (f"L{int(entry.level)}", device and entry.repo, oncalls) if one),
        exact=words.folded in {entry.key, (entry.device or entry.repo).casefold()},
    )


async def _jobs(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return jobs of backends; each leads to its column on its backend's page."""
    if words.number is not None or words.sha:
        return []
    hidden = asked.hidden.names
    found = await find_names(asked.tx, words.text.split()[:WORDS_MOST], hidden=hidden, limit=JOBS)
    names = await read_names(asked, {row["backend"] for row in found})
    unsharded: dict[tuple[str, str, str], JobNameRow] = {}
    for row in found:
        if not names.hides(row["backend"]):
            unsharded.setdefault((row["backend_key"], row["workflow"], name_shards(row["job"])), row)
    return [
        Hit(
            kind="job",
            title=f"{row['workflow']} / {job}",
            path=f"/oot/{row['backend']}?columns=all#{anchor_of_job(row['workflow'], job)}",
            repo=row["backend"],
            detail="of a backend",
        )
        for (_, _, job), row in list(unsharded.items())[:limit]
    ]


async def _pulls(asked: Asked, words: Words, shown: Mapping[int, str], limit: int) -> list[Hit]:
    tx, named = asked.tx, words.repo.casefold()
    owners = {one for one, name in shown.items() if not words.number or named in {"", name.casefold()}}
    found: list[PullRow] = []
    if words.number:
        found += await pull_rows.pulls_by_number(tx, owners, words.number, limit=limit)
    elif words.sha:
        found += await pull_rows.pulls_by_head(tx, owners, words.sha, limit=limit)
    else:
        titles = await word_index.find_titles(tx, pull_words.KIND, words.text, owners=owners, limit=limit)
        found += await pull_rows.pulls_of(tx, [(row["repository_id"], int(row["ref"])) for row in titles])
    return [_pull(one, shown[one["repository_id"]], words) for one in found]


def _pull(found: PullRow, repo: str, words: Words) -> Hit:
    state = "merged" if found["merged"] else found["state"] or ""
    head = f"?sha={found['head_sha']}" if words.sha and not words.number else ""
    by = f"by {found['user_login']}" if found["user_login"] else ""
    return Hit(
        kind="pull request",
        title=f"#{found['number']} {found['title'] or ''}".rstrip(),
        path=f"/{repo}/pull/{found['number']}{head}",
        repo=repo,
        detail=", ".join(one for one in (state, by, found["head_ref"] or "") if one),
        exact=bool(words.number) or len(words.sha) >= len(found["head_sha"] or "") > 0,
    )
