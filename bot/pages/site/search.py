"""GET /search?q= and its JSON: everything that a text may name, and the way to search logs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec import Meta, Struct

from bot.db import word_index
from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.commands.syntax import describe_commands
from bot.oot.statistics.countable_jobs import find_names
from bot.pages.backends.interface import RESULTS, read_names
from bot.pages.backends.job_matrix import anchor_of_job, name_shards
from bot.pages.pulls import pull_rows
from bot.web import access, addresses, search
from bot.web import parameters as declare
from bot.web.answers import Answer
from bot.web.html import page, render
from bot.web.parameters import open_query
from bot.web.search import Hit
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ingest.record_rows import PullRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.statistics.tables import JobNameRow
    from bot.web.parameters import Query
    from bot.web.search import SearchWords

MOST_JOBS = 100  # of backends, with their shards
MOST_WORDS = 8


async def find_hits(asked: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Return upstream repositories, backends and their jobs, pull requests and commands in comments."""
    private = access.reads_private(asked.request)
    shown = await record_store.read_visible_repositories(asked.tx, asked.hidden, private=private)
    return [
        *_upstreams(asked, words),
        *await _backends(asked, words, limit),
        *await _jobs(asked, words, limit),
        *await _pulls(asked, words, shown, limit),
        *_commands(asked, words),
    ]


def _upstreams(asked: Query, words: SearchWords) -> list[Hit]:
    return [
        Hit(kind="repository", title=repo, path=f"/{repo}", repo=repo, exact=repo.casefold() == words.folded)
        for repo in asked.settings.upstream_repo
        if words.folded in repo.casefold() and not asked.hidden.has(repo)
    ]


def _commands(asked: Query, words: SearchWords) -> list[Hit]:
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


async def _backends(asked: Query, words: SearchWords, limit: int) -> list[Hit]:
    if all(map(asked.hidden.has, asked.settings.upstream_repo)):
        return []
    allowlist = await allowlists.read_in_force(asked.tx)
    entries = [one for one in allowlist.entries if _matches(one, words)] if allowlist else []
    return [_backend(one, words) for one in entries[:limit]]


def _matches(entry: Entry, words: SearchWords) -> bool:
    names = " ".join((entry.repo, entry.device or "", *entry.aka, *entry.oncalls)).casefold()
    return all(word in names for word in words.folded.removeprefix("@").split())


def _backend(entry: Entry, words: SearchWords) -> Hit:
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


async def _jobs(asked: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Return jobs of backends; each leads to its column on its backend's page."""
    if words.number is not None or words.sha:
        return []
    hidden = asked.hidden.names
    found = await find_names(asked.tx, words.text.split()[:MOST_WORDS], hidden=hidden, limit=MOST_JOBS)
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


async def _pulls(asked: Query, words: SearchWords, shown: Mapping[int, str], limit: int) -> list[Hit]:
    tx, named = asked.tx, words.repo.casefold()
    owners = {one for one, name in shown.items() if not words.number or named in {"", name.casefold()}}
    found: list[PullRow] = []
    if words.number:
        found += await pull_rows.pulls_by_number(tx, owners, words.number, limit=limit)
    elif words.sha:
        found += await pull_rows.pulls_by_head(tx, owners, words.sha, limit=limit)
    else:
        titles = await word_index.find_titles(
            tx, pull_rows.TITLE_KIND, words.text, owners=owners, limit=limit
        )
        found += await pull_rows.pulls_of(tx, [(row["repository_id"], int(row["ref"])) for row in titles])
    return [_pull(one, shown[one["repository_id"]], words) for one in found]


def _pull(found: PullRow, repo: str, words: SearchWords) -> Hit:
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


TEXT = declare.text("q", "number, SHA, name, title or words", most=search.LONGEST_SEARCH)


class FoundHit(Struct, frozen=True, kw_only=True):
    """Something that the text names."""

    kind: str
    name: str
    url: Annotated[str, Meta(description="of its page")]
    repo: str
    detail: str
    exact: Annotated[bool, Meta(description="the text is its number, SHA or name")]


class FoundHits(Answer, frozen=True, kw_only=True):
    """What a text may name, a few of each kind"""

    hits: list[FoundHit]


@page
async def show_search(request: web.Request) -> web.Response:
    """Show what a text may name; what has this very number or SHA is shown itself."""
    async with open_query(request, (TEXT,), form="page") as asked:
        text = asked[TEXT]
        found = await search.find_hits(asked, text)
    only = search.only_exact(found)
    if only and only.kind in search.DIRECT:
        return web.Response(status=302, headers={"Location": only.path})
    return render(
        request,
        "search.html",
        text=search.searched_text(text),
        hits=[one for one in found if one.kind not in search.FURTHER],
        pages=[one for one in found if one.kind in search.FURTHER],
        json_url=f"/api/search?{addresses.query({'q': text})}" if text else "",
    )


async def read_hits(asked: Query) -> FoundHits:
    """Search for a text."""
    return answer_hits(await search.find_hits(asked, asked[TEXT]), asked.settings.url)


def answer_hits(found: list[Hit], url: str) -> FoundHits:
    """Return what was found as it is sent."""
    return FoundHits(
        hits=[
            FoundHit(
                kind=one.kind,
                name=one.title,
                url=f"{url}{one.path}",
                repo=one.repo,
                detail=one.detail,
                exact=one.exact,
            )
            for one in found
        ]
    )


PAGE = Endpoint(web.get("/search", show_search))
VIEW = View(
    read=read_hits,
    parameters=(TEXT,),
    json=Json(
        path="/api/search",
        answer=lambda found: found,
        content=FoundHits,
        name="search",
        summary="What a text may name",
        topic=RESULTS,
        description=(
            "Pull requests, commits, branches, backends, runs, jobs, tests and failures, "
            "by number, SHA, name, title, author or address on GitHub."
        ),
    ),
)
