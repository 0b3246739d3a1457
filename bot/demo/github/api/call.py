"""API calls, routes and responses: what endpoints get and return, with paging."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlencode

from aiohttp import web

from bot.demo.github.faults import ApiError, not_found

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from bot.demo.github.accounts import App, Installation, Token
    from bot.demo.github.models import Repo
    from bot.demo.github.state import GitHubState
    from bot.demo.github.webhooks import Webhooks
    from bot.demo.github.workflows import Workflows

Access = Literal["app", "token", "repository"]
T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class ApiCall:
    """An authenticated call; `background_work` runs once the response has been sent."""

    state: GitHubState
    webhooks: Webhooks
    workflows: Workflows
    request: web.Request
    app: App
    token: Token | None
    repository: Repo | None
    body: dict[str, Any]
    background_work: list[Callable[[], Coroutine[object, object, object]]] = field(default_factory=list)

    @property
    def repo(self) -> Repo:
        """The repository of the path."""
        if self.repository is None:
            raise not_found()
        return self.repository

    @property
    def installation(self) -> Installation:
        """The installation of the caller's token."""
        if self.token is None:
            raise ApiError(401, "Bad credentials")
        return self.token.installation

    @property
    def now(self) -> int:
        """The simulation's time in epoch milliseconds."""
        return self.state.now()

    def path_text(self, name: str) -> str:
        """Return a parameter of the path."""
        return self.request.match_info[name]

    def path_number(self, name: str) -> int:
        """Return a numeric parameter of the path; 404 when it is not a number."""
        text = self.path_text(name)
        if not (text.isascii() and text.isdigit()):
            raise not_found()
        return int(text)

    def query(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self.request.query.get(name, default)

    def after_response(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Run this once the response has been sent: webhooks, dispatched workflows."""
        self.background_work.append(work)


@dataclass(frozen=True, kw_only=True)
class Route:
    """An endpoint; the caller needs one of the permissions in `needs`, if there are any."""

    method: str
    path: str
    handler: Callable[[ApiCall], Awaitable[web.Response]]
    access: Access = "repository"
    needs: tuple[str, ...] = ()


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        status=status,
        headers=headers,
        body=json.dumps(body).encode(),
        content_type="application/json",
    )


def no_content() -> web.Response:
    """Return an empty response: 204."""
    return web.Response(status=204)


def page_size(call: ApiCall) -> int:
    """Return the number of rows per page: 30 by default, at most 100."""
    return min(_positive(call.query("per_page"), 30), 100)


def paginate(call: ApiCall, rows: Sequence[T]) -> tuple[list[T], dict[str, str]]:
    """Return the rows of the requested page, and the Link header with the other pages."""
    size = page_size(call)
    page = _positive(call.query("page"), 1)
    last = max(1, -(-len(rows) // size))
    links: dict[str, int] = {}
    if page > 1:
        links |= {"prev": min(page - 1, last), "first": 1}
    if page < last:
        links |= {"next": page + 1, "last": last}
    header = ", ".join(f'<{_page_url(call, number)}>; rel="{rel}"' for rel, number in links.items())
    return list(rows[(page - 1) * size : page * size]), {"Link": header} if header else {}


def paginated(call: ApiCall, rows: Sequence[T], show: Callable[[GitHubState, T], Any]) -> web.Response:
    """Return a page of a list."""
    page, headers = paginate(call, rows)
    return json_response([show(call.state, row) for row in page], headers=headers)


def paginated_with_total(
    call: ApiCall, name: str, rows: Sequence[T], show: Callable[[GitHubState, T], Any]
) -> web.Response:
    """Return a page of a list with its total."""
    page, headers = paginate(call, rows)
    body = {"total_count": len(rows), name: [show(call.state, row) for row in page]}
    return json_response(body, headers=headers)


def _page_url(call: ApiCall, page: int) -> str:
    url = call.state.url + call.request.rel_url.raw_path
    query = {**call.request.query, "page": str(page)}
    return f"{url}?{urlencode(query)}"


def _positive(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default
