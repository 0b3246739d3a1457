"""The REST API: routing, authentication, permissions, rate limit, faults and the call log."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.demo.github import auth, commit_statuses
from bot.demo.github.accounts import App, Token
from bot.demo.github.api import actions, apps, artifacts, checks, comments, dispatches, issues, repos, young
from bot.demo.github.api.call import ApiCall, Route, json_response
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.models import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.demo.github.faults import Fault, RateLimit
    from bot.demo.github.models import Repo
    from bot.demo.github.workflows import Workflows

PREFIX = "/api/v3"
# The routes of single commits come last, as a ref may contain slashes.
ROUTES = (
    *apps.ROUTES,
    *checks.ROUTES,
    *comments.ROUTES,
    *issues.ROUTES,
    *dispatches.ROUTES,
    *actions.ROUTES,
    *artifacts.ROUTES,
    *commit_statuses.ROUTES,
    *repos.ROUTES,
)


@dataclass(kw_only=True)
class Progress:
    """How far a request has been processed; the source of its log entry."""

    request: web.Request
    path: str
    body: Any = None
    caller: App | Token | None = None
    call: ApiCall | None = None

    @property
    def app_id(self) -> int | None:
        """The calling App, once it is known."""
        app = self.caller.installation.app if isinstance(self.caller, Token) else self.caller
        return app.app_id if app else None


class RestApi:
    """The REST API of a simulated GitHub."""

    def __init__(self, github: Workflows, limits: RateLimit) -> None:
        self._github = github
        self._limits = limits

    def add_to(self, application: web.Application) -> None:
        """Add the routes of all endpoints, and a 404 for the rest."""
        for route in ROUTES:
            application.router.add_route(route.method, PREFIX + route.path, self._endpoint(route))
        application.router.add_route("*", PREFIX + "/{rest:.*}", self._endpoint(None))

    def _endpoint(self, route: Route | None) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def endpoint(request: web.Request) -> web.Response:
            return await self._serve(request, route)

        return endpoint

    async def _serve(self, request: web.Request, route: Route | None) -> web.Response:
        """Answer a request, subject to an injected fault, and log it."""
        progress = Progress(request=request, path=request.rel_url.path.removeprefix(PREFIX))
        fault = self._github.faults.take(request.method, progress.path)
        raw = await request.read()
        if fault and fault.when == "meanwhile":
            _close_connection(request)
        if fault and fault.delay:
            await self._github.state.clock.sleep(fault.delay)
        regular = None
        if not (fault and fault.replaces and fault.when == "before"):
            regular = await self._perform(progress, route, raw)
        response = _with_fault(regular, fault)
        response.headers.setdefault("Date", formatdate(self._github.state.now() / 1000, usegmt=True))
        call = self._log(progress, fault, response.status)
        if self._github.state.on_answer is not None:
            self._github.state.on_answer(call, response)
        if fault and fault.drop:
            _close_connection(request)
        else:
            # A caller that has disconnected gets no response, but its call takes effect all the same.
            with contextlib.suppress(ConnectionError):
                await response.prepare(request)
                await response.write_eof()
        if progress.call and progress.call.background_work:
            self._github.background.spawn(_run_background_work(progress.call))
        return response

    async def _perform(self, progress: Progress, route: Route | None, raw: bytes) -> web.Response:
        """Perform a call and return GitHub's response."""
        try:
            call = progress.call = self._authorize(progress, route, raw)
            young.refuse_unknown(call)
            response = await route.handler(call) if route else json_response({}, 404)
        except ApiError as error:
            response = json_response(error.body(), error.status, error.headers)
        response.headers["X-GitHub-Request-Id"] = uuid.uuid4().hex.upper()
        response.headers["X-GitHub-Media-Type"] = "github.v3; format=json"
        if version := self._github.state.server_version:
            response.headers["X-GitHub-Enterprise-Version"] = version
        response = _conditional(progress.request, response)
        response.headers.update(self._limits.count(progress.caller, free=response.status == 304))
        return response

    def _authorize(self, progress: Progress, route: Route | None, raw: bytes) -> ApiCall:
        """Return the call if its sender may make it; raise ApiError otherwise."""
        request, state = progress.request, self._github.state
        if not request.headers.get("User-Agent"):
            raise ApiError(403, "Request forbidden: please send a User-Agent header")
        progress.caller = caller = auth.caller(state, request.headers.get("Authorization", ""))
        self._limits.check(caller)
        if route is None:
            raise not_found()
        progress.body = body = _json(raw)
        repo = self._repo_for(route, caller, request)
        return ApiCall(
            state=state,
            webhooks=self._github.webhooks,
            workflows=self._github,
            request=request,
            app=caller.installation.app if isinstance(caller, Token) else caller,
            token=caller if isinstance(caller, Token) else None,
            repository=repo,
            body=body,
        )

    def _repo_for(self, route: Route, caller: App | Token, request: web.Request) -> Repo | None:
        """Return the repository if the caller may use it; None for endpoints without one."""
        if route.access == "app":
            if not isinstance(caller, App):
                raise ApiError(401, "A JSON web token could not be decoded")
            return None
        if not isinstance(caller, Token):
            raise ApiError(403, "Resource not accessible by integration")
        if route.access == "token":
            return None
        repo = self._repo_in_path(request)
        if repo is None or not auth.covers(caller, repo):
            raise not_found()
        if not auth.may(caller.permissions, route.needs):
            accepted = {"X-Accepted-GitHub-Permissions": "; ".join(route.needs).replace(":", "=")}
            raise ApiError(403, "Resource not accessible by integration", headers=accepted)
        if repo.archived and request.method != "GET":
            raise ApiError(403, "Repository was archived so is read-only.")
        return repo

    def _repo_in_path(self, request: web.Request) -> Repo | None:
        """Return the repository in the path, by name or id."""
        parts = request.match_info
        if "repository" in parts:
            number = parts["repository"]
            return self._github.state.repo_by_id(int(number)) if number.isdecimal() else None
        return self._github.state.repos.get(f"{parts['owner']}/{parts['repo']}".lower())

    def _log(self, progress: Progress, fault: Fault | None, status: int) -> Call:
        call = Call(
            method=progress.request.method,
            path=progress.path,
            query=progress.request.rel_url.query_string,
            status=0 if fault and fault.drop else status,
            app_id=progress.app_id,
            faulted=fault is not None,
            at=self._github.state.now(),
            body=progress.body,
        )
        self._github.state.calls.append(call)
        return call


async def _run_background_work(call: ApiCall) -> None:
    """Run what an answered call causes, in order."""
    for work in call.background_work:
        await work()


def _close_connection(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _json(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError:
        raise ApiError(400, "Problems parsing JSON") from None
    if not isinstance(body, dict):
        raise ApiError(400, "Body should be a JSON object")
    return body


def _with_fault(regular: web.Response | None, fault: Fault | None) -> web.Response:
    """Return the regular response or that of the fault."""
    if fault and (regular is None or fault.replaces):
        return web.Response(
            status=fault.status or 502,
            text=fault.text(),
            headers=fault.headers,
            content_type="application/json",
        )
    if regular is None:
        raise RuntimeError("a call without a replacing fault must have a response")
    if fault:
        regular.headers.update(fault.headers)
    return regular


def _conditional(request: web.Request, response: web.Response) -> web.Response:
    """Add an ETag to a response, or return 304 if the caller has that version."""
    if request.method != "GET" or response.status != 200:
        return response
    body = response.body if isinstance(response.body, bytes) else b""
    tag = f'W/"{hashlib.sha256(body).hexdigest()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return response
