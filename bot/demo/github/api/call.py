"""What does an endpoint get, and how does it answer? Calls, routes, paging."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlencode

from aiohttp import web

from bot.demo.github.refusals import Refused, missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from bot.demo.github.accounts import App, Installation, Token
    from bot.demo.github.hooks import Hooks
    from bot.demo.github.pipelines import Pipelines
    from bot.demo.github.state import Repo
    from bot.demo.github.world import World

Access = Literal["app", "token", "repository"]
T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class ApiCall:
    """One authenticated call. `afterwards` is what happens once the answer was sent."""

    world: World
    hooks: Hooks
    pipelines: Pipelines
    request: web.Request
    app: App
    token: Token | None
    found: Repo | None
    body: dict[str, Any]
    afterwards: list[Callable[[], Coroutine[object, object, object]]] = field(default_factory=list)

    @property
    def repo(self) -> Repo:
        """The repository of the path."""
        if self.found is None:
            raise missing()
        return self.found

    @property
    def installation(self) -> Installation:
        """The installation whose token was shown."""
        if self.token is None:
            raise Refused(401, "Bad credentials")
        return self.token.installation

    @property
    def now(self) -> int:
        """The simulation's time in epoch milliseconds."""
        return self.world.now()

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return self.request.match_info[name]

    def number(self, name: str) -> int:
        """Return a number out of the path; 404 when it is none."""
        text = self.part(name)
        if not (text.isascii() and text.isdigit()):
            raise missing()
        return int(text)

    def query(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self.request.query.get(name, default)

    def later(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Do this once the answer was sent: webhooks, and what the dispatched workflow does."""
        self.afterwards.append(work)


@dataclass(frozen=True, kw_only=True)
class Route:
    """An endpoint: who may call it, and which one of the permissions `needs` names it takes."""

    method: str
    path: str
    handler: Callable[[ApiCall], Awaitable[web.Response]]
    access: Access = "repository"
    needs: tuple[str, ...] = ()


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with JSON."""
    return web.Response(
        status=status,
        headers=headers,
        body=json.dumps(body).encode(),
        content_type="application/json",
    )


def nothing() -> web.Response:
    """Answer that it is done: 204."""
    return web.Response(status=204)


def size_of(call: ApiCall) -> int:
    """Return how many rows a page has: 30 unless asked for otherwise, 100 at most."""
    return min(_positive(call.query("per_page"), 30), 100)


def page_of(call: ApiCall, rows: Sequence[T]) -> tuple[list[T], dict[str, str]]:
    """Return the rows of the asked page and the Link header that leads on."""
    size = size_of(call)
    page = _positive(call.query("page"), 1)
    last = max(1, -(-len(rows) // size))
    links: dict[str, int] = {}
    if page > 1:
        links |= {"prev": min(page - 1, last), "first": 1}
    if page < last:
        links |= {"next": page + 1, "last": last}
    header = ", ".join(f'<{_at(call, number)}>; rel="{rel}"' for rel, number in links.items())
    return list(rows[(page - 1) * size : page * size]), {"Link": header} if header else {}


def listing(call: ApiCall, rows: Sequence[T], show: Callable[[World, T], Any]) -> web.Response:
    """Answer with one page of a plain list."""
    shown, headers = page_of(call, rows)
    return answer([show(call.world, row) for row in shown], headers=headers)


def counted(call: ApiCall, name: str, rows: Sequence[T], show: Callable[[World, T], Any]) -> web.Response:
    """Answer with one page of a list that comes with its total."""
    shown, headers = page_of(call, rows)
    body = {"total_count": len(rows), name: [show(call.world, row) for row in shown]}
    return answer(body, headers=headers)


def _at(call: ApiCall, page: int) -> str:
    here = call.world.url + call.request.rel_url.raw_path
    query = {**call.request.query, "page": str(page)}
    return f"{here}?{urlencode(query)}"


def _positive(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default
