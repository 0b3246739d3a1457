"""GET /search?q= and its JSON: everything that a text may name, and the way to search logs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec import Meta, Struct

from bot.oot.pages.backend_parameters import RESULTS
from bot.web import parameters, search
from bot.web import view_parameters as declare
from bot.web.answers import Answer
from bot.web.asked import asking
from bot.web.html import page, render
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from bot.web.asked import Asked
    from bot.web.search import Hit

TEXT = declare.text("q", "number, SHA, name, title or words", most=search.LONGEST)


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
    async with asking(request, (TEXT,), form="page") as asked:
        text = asked[TEXT]
        found = await search.find_hits(asked, text)
    only = search.only_exact(found)
    if only and only.kind in search.DIRECT:
        return web.Response(status=302, headers={"Location": only.path})
    return render(
        request,
        "search.html",
        text=search.shown(text),
        hits=[one for one in found if one.kind not in search.FURTHER],
        pages=[one for one in found if one.kind in search.FURTHER],
        json_url=f"/api/search?{parameters.query({'q': text})}" if text else "",
    )


async def read_hits(asked: Asked) -> FoundHits:
    """Search for a text."""
    return answer(await search.find_hits(asked, asked[TEXT]), asked.settings.url)


def answer(found: list[Hit], url: str) -> FoundHits:
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
