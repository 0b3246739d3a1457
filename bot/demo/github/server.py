"""How does a request reach its endpoint? Faults, callers, permissions, limits and the call log."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.demo.github import auth
from bot.demo.github.accounts import App, Token
from bot.demo.github.api import actions, apps, checks, comments, dispatches, repos
from bot.demo.github.api.call import ApiCall, Route, answer
from bot.demo.github.records import Call
from bot.demo.github.refusals import Refused, missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.demo.github.faults import Fault
    from bot.demo.github.limits import Limits
    from bot.demo.github.pipelines import Pipelines
    from bot.demo.github.state import Repo

PREFIX = "/api/v3"
# Those of single commits come last: a ref may hold slashes.
ROUTES = (
    *apps.ROUTES,
    *checks.ROUTES,
    *comments.ROUTES,
    *dispatches.ROUTES,
    *actions.ROUTES,
    *repos.ROUTES,
)


@dataclass(kw_only=True)
class Attempt:
    """One request as far as it got; what the call log will say."""

    request: web.Request
    path: str
    sent: Any = None
    caller: App | Token | None = None
    call: ApiCall | None = None

    @property
    def app_id(self) -> int | None:
        """The App behind the request, once it is known."""
        app = self.caller.installation.app if isinstance(self.caller, Token) else self.caller
        return app.app_id if app else None


class RestApi:
    """The REST API over a simulated GitHub."""

    def __init__(self, stage: Pipelines, limits: Limits) -> None:
        self._stage = stage
        self._limits = limits

    def add_to(self, application: web.Application) -> None:
        """Register every endpoint, and a 404 for the rest."""
        for route in ROUTES:
            application.router.add_route(route.method, PREFIX + route.path, self._endpoint(route))
        application.router.add_route("*", PREFIX + "/{rest:.*}", self._endpoint(None))

    def _endpoint(self, route: Route | None) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def endpoint(request: web.Request) -> web.Response:
            return await self._serve(request, route)

        return endpoint

    async def _serve(self, request: web.Request, route: Route | None) -> web.Response:
        """Answer one request, disturbed where a fault says so, and log it."""
        attempt = Attempt(request=request, path=request.rel_url.path.removeprefix(PREFIX))
        fault = self._stage.faults.take(request.method, attempt.path)
        raw = await request.read()
        if fault and fault.when == "meanwhile":
            _hang_up(request)
        if fault and fault.delay:
            await self._stage.world.clock.sleep(fault.delay)
        honest = None
        if not (fault and fault.replaces and fault.when == "before"):
            honest = await self._perform(attempt, route, raw)
        response = _disturbed(honest, fault)
        response.headers.setdefault("Date", formatdate(self._stage.world.now() / 1000, usegmt=True))
        self._log(attempt, fault, response.status)
        if fault and fault.drop:
            _hang_up(request)
        else:
            # A caller that has hung up gets no answer; what it asked for happens all the same.
            with contextlib.suppress(ConnectionError):
                await response.prepare(request)
                await response.write_eof()
        if attempt.call and attempt.call.afterwards:
            self._stage.background.spawn(_afterwards(attempt.call))
        return response

    async def _perform(self, attempt: Attempt, route: Route | None, raw: bytes) -> web.Response:
        """Return the answer that GitHub would give."""
        try:
            call = attempt.call = self._admit(attempt, route, raw)
            response = await route.handler(call) if route else answer({}, 404)
        except Refused as refused:
            response = answer(refused.body(), refused.status, refused.headers)
        response.headers["X-GitHub-Request-Id"] = uuid.uuid4().hex.upper()
        response.headers["X-GitHub-Media-Type"] = "github.v3; format=json"
        response = _unchanged(attempt.request, response)
        response.headers.update(self._limits.count(attempt.caller, free=response.status == 304))
        return response

    def _admit(self, attempt: Attempt, route: Route | None, raw: bytes) -> ApiCall:
        """Let a request in whose sender may do what it asks; refuse it otherwise."""
        request, world = attempt.request, self._stage.world
        if not request.headers.get("User-Agent"):
            raise Refused(403, "Request forbidden: please send a User-Agent header")
        attempt.caller = caller = auth.caller(world, request.headers.get("Authorization", ""))
        self._limits.check(caller)
        if route is None:
            raise missing()
        attempt.sent = body = _json(raw)
        repo = self._repo_for(route, caller, request)
        return ApiCall(
            world=world,
            hooks=self._stage.hooks,
            pipelines=self._stage,
            request=request,
            app=caller.installation.app if isinstance(caller, Token) else caller,
            token=caller if isinstance(caller, Token) else None,
            found=repo,
            body=body,
        )

    def _repo_for(self, route: Route, caller: App | Token, request: web.Request) -> Repo | None:
        """Return the repository that the caller may use so; None where none is meant."""
        if route.access == "app":
            if not isinstance(caller, App):
                raise Refused(401, "A JSON web token could not be decoded")
            return None
        if not isinstance(caller, Token):
            raise Refused(403, "Resource not accessible by integration")
        if route.access == "token":
            return None
        repo = self._named(request)
        if repo is None or not auth.covers(caller, repo):
            raise missing()
        if not auth.may(caller.permissions, route.needs):
            accepted = {"X-Accepted-GitHub-Permissions": "; ".join(route.needs).replace(":", "=")}
            raise Refused(403, "Resource not accessible by integration", headers=accepted)
        if repo.archived and request.method != "GET":
            raise Refused(403, "Repository was archived so is read-only.")
        return repo

    def _named(self, request: web.Request) -> Repo | None:
        """Return the repository of the path, by name or by id."""
        parts = request.match_info
        if "repository" in parts:
            number = parts["repository"]
            return self._stage.world.repo_by_id(int(number)) if number.isdecimal() else None
        return self._stage.world.repos.get(f"{parts['owner']}/{parts['repo']}".lower())

    def _log(self, attempt: Attempt, fault: Fault | None, status: int) -> None:
        self._stage.world.calls.append(
            Call(
                method=attempt.request.method,
                path=attempt.path,
                query=attempt.request.rel_url.query_string,
                status=0 if fault and fault.drop else status,
                app_id=attempt.app_id,
                faulted=fault is not None,
                at=self._stage.world.now(),
                body=attempt.sent,
            )
        )


async def _afterwards(call: ApiCall) -> None:
    """Do, in order, what an answered call sets off."""
    for work in call.afterwards:
        await work()


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _json(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError:
        raise Refused(400, "Problems parsing JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "Body should be a JSON object")
    return body


def _disturbed(honest: web.Response | None, fault: Fault | None) -> web.Response:
    """Return what goes over the wire: the honest answer, or the fault's."""
    if fault and (honest is None or fault.replaces):
        return web.Response(
            status=fault.status or 502,
            text=fault.text(),
            headers=fault.headers,
            content_type="application/json",
        )
    if honest is None:
        raise RuntimeError("a call that no fault replaces must have an answer")
    if fault:
        honest.headers.update(fault.headers)
    return honest


def _unchanged(request: web.Request, response: web.Response) -> web.Response:
    """Tag what was read, and answer 304 when the caller has it already."""
    if request.method != "GET" or response.status != 200:
        return response
    body = response.body if isinstance(response.body, bytes) else b""
    tag = f'W/"{hashlib.sha256(body).hexdigest()}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return response
