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


async def find_hits(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Find upstream repositories, backends and their jobs, pull requests, and commands of comments."""
    private = access.reads_private(query.request)
    shown = await record_store.read_visible_repositories(query.tx, query.hidden, private=private)
    return [
        *_upstreams(query, words),
        *await _backends(query, words, limit),
        *await _jobs(query, words, limit),
        *await _pulls(query, words, shown, limit),
        *_commands(query, words),
    ]


@page
async def show_search(request: web.Request) -> web.Response:
    """Show what a text may name; redirect to what has exactly this number or SHA."""
    async with open_query(request, (TEXT,), form="page") as query:
        text = query[TEXT]
        hits = await search.find_hits(query, text)
    only = search.only_exact(hits)
    if only and only.kind in search.DIRECT:
        return web.Response(status=302, headers={"Location": only.path})
    return render(
        request,
        "search.html",
        text=search.searched_text(text),
        hits=[hit for hit in hits if hit.kind not in search.FURTHER],
        pages=[hit for hit in hits if hit.kind in search.FURTHER],
        json_url=f"/api/search?{addresses.query({'q': text})}" if text else "",
    )


async def read_hits(query: Query) -> FoundHits:
    """Search for a text."""
    return answer_hits(await search.find_hits(query, query[TEXT]), query.settings.url)


def answer_hits(hits: list[Hit], url: str) -> FoundHits:
    """Return the hits as JSON."""
    return FoundHits(
        hits=[
            FoundHit(
                kind=hit.kind,
                name=hit.title,
                url=f"{url}{hit.path}",
                repo=hit.repo,
                detail=hit.detail,
                exact=hit.exact,
            )
            for hit in hits
        ]
    )


PAGE = Endpoint(web.get("/search", show_search))
VIEW = View(
    read=read_hits,
    parameters=(TEXT,),
    json=Json(
        path="/api/search",
        answer=lambda hits: hits,
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


def _upstreams(query: Query, words: SearchWords) -> list[Hit]:
    return [
        Hit(kind="repository", title=repo, path=f"/{repo}", repo=repo, exact=repo.casefold() == words.folded)
        for repo in query.settings.upstream_repo
        if words.folded in repo.casefold() and not query.hidden.has(repo)
    ]


def _commands(query: Query, words: SearchWords) -> list[Hit]:
    """Find the command of this name; after `/oot`, all that fit."""
    said = words.folded.removeprefix("/oot").strip()
    every = words.folded.startswith("/oot")
    verb = said.partition(" ")[0]
    return [
        Hit(
            kind="command",
            title=f"/oot {command.usage}",
            path=f"/oot/commands#{command.verb}",
            detail=command.does,
            exact=every and verb == command.verb,
        )
        for command in describe_commands(query.context.features)
        if verb == command.verb or (every and command.verb.startswith(verb))
    ]


async def _backends(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    if all(map(query.hidden.has, query.settings.upstream_repo)):
        return []
    allowlist = await allowlists.read_in_force(query.tx)
    entries = [entry for entry in allowlist.entries if _matches(entry, words)] if allowlist else []
    return [_backend(entry, words) for entry in entries[:limit]]


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
        detail=", ".join(part for part in (f"L{int(entry.level)}", device and entry.repo, oncalls) if part),
        exact=words.folded in {entry.key, (entry.device or entry.repo).casefold()},
    )


async def _jobs(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Find jobs of backends; each hit leads to the column on its backend's page."""
    if words.number is not None or words.sha:
        return []
    hidden = query.hidden.names
    rows = await find_names(query.tx, words.text.split()[:MOST_WORDS], hidden=hidden, limit=MOST_JOBS)
    names = await read_names(query, {row["backend"] for row in rows})
    unsharded: dict[tuple[str, str, str], JobNameRow] = {}
    for row in rows:
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


async def _pulls(query: Query, words: SearchWords, shown: Mapping[int, str], limit: int) -> list[Hit]:
    tx, named = query.tx, words.repo.casefold()
    owners = {owner for owner, name in shown.items() if not words.number or named in {"", name.casefold()}}
    pulls: list[PullRow] = []
    if words.number:
        pulls += await pull_rows.pulls_by_number(tx, owners, words.number, limit=limit)
    elif words.sha:
        pulls += await pull_rows.pulls_by_head(tx, owners, words.sha, limit=limit)
    else:
        titles = await word_index.find_titles(
            tx, pull_rows.TITLE_KIND, words.text, owners=owners, limit=limit
        )
        pulls += await pull_rows.pulls_of(tx, [(row["repository_id"], int(row["ref"])) for row in titles])
    return [_pull(pull, shown[pull["repository_id"]], words) for pull in pulls]


def _pull(pull: PullRow, repo: str, words: SearchWords) -> Hit:
    state = "merged" if pull["merged"] else pull["state"] or ""
    head = f"?sha={pull['head_sha']}" if words.sha and not words.number else ""
    by = f"by {pull['user_login']}" if pull["user_login"] else ""
    return Hit(
        kind="pull request",
        title=f"#{pull['number']} {pull['title'] or ''}".rstrip(),
        path=f"/{repo}/pull/{pull['number']}{head}",
        repo=repo,
        detail=", ".join(part for part in (state, by, pull["head_ref"] or "") if part),
        exact=bool(words.number) or len(words.sha) >= len(pull["head_sha"] or "") > 0,
    )
