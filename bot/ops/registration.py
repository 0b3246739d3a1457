"""The registration page of `ootbot init`: on loopback, for one visitor; GitHub's one-time code becomes a new App."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import jinja2
import msgspec
from aiohttp import web

from bot import __version__
from bot.core.errors import GitHubRefused, RetryLater, in_words
from bot.core.escaping import is_enterprise_server
from bot.github.client import GitHubApp
from bot.github.responses import ENTERPRISE_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.core.clock import Clock
    from bot.ops.registration_files import SettingsFiles, WantedApp

EXCHANGE_TIMEOUT = aiohttp.ClientTimeout(total=20)
SETUP_COOKIE = "ootbot_setup"
STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8886;vertical-align:top}"
    "button{font:inherit;padding:.5rem 1rem}.problem{border-left:4px solid #c33;padding-left:.7rem}"
)


class _Conversion(msgspec.Struct):
    id: int
    slug: str
    html_url: str
    pem: str
    webhook_secret: str | None = None


@dataclass(frozen=True, kw_only=True)
class RegisteredApp:
    """A registered App. Its client secret is not kept: it serves for signing in only."""

    app_id: int
    slug: str
    html_url: str
    private_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)


async def server_version(http: aiohttp.ClientSession, api_url: str) -> str:
    """Return the version of a GitHub Enterprise Server, empty for github.com and where it cannot be asked."""
    try:
        async with http.get(f"{api_url}/meta", timeout=EXCHANGE_TIMEOUT, allow_redirects=False) as answer:
            return answer.headers.get(ENTERPRISE_HEADER, "")[:20]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


async def exchange_code(
    http: aiohttp.ClientSession, clock: Clock, *, api_url: str, code: str
) -> RegisteredApp:
    """Return the App; raises GitHubRefused for a code that is used or expired, RetryLater when GitHub is down."""
    url = f"{api_url}/app-manifests/{code}/conversions"
    headers = {"accept": "application/vnd.github+json", "user-agent": f"ootbot/{__version__}"}
    try:
        async with http.post(url, headers=headers, timeout=EXCHANGE_TIMEOUT, allow_redirects=False) as answer:
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise RetryLater(f"{api_url} cannot be reached: {in_words(error)}") from error
    if answer.status >= 500:
        raise RetryLater(f"GitHub answered {answer.status}")
    if answer.status != 201:
        raise GitHubRefused(answer.status, "the code is used, older than an hour, or not GitHub's")
    given = _read_conversion(body)
    secret = given.webhook_secret or await _give_secret(http, clock, api_url, given)
    return RegisteredApp(
        app_id=given.id,
        slug=given.slug,
        html_url=given.html_url,
        private_key=given.pem,
        webhook_secret=secret,
    )


class RegistrationPage:
    """One registration, from the first page to the last file."""

    def __init__(
        self,
        wanted: WantedApp,
        files: SettingsFiles,
        *,
        http: aiohttp.ClientSession,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._wanted = wanted
        self._files = files
        self._http = http
        self._clock = clock
        self._tell = tell
        self._token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._state = secrets.token_urlsafe(24)
        self._turn = asyncio.Lock()
        self._problem = ""
        self._asked = False  # for the server's version
        self._url = ""
        self.made: list[RegisteredApp] = []
        self.finished = asyncio.Event()  # the last page was seen
        loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
        self._templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)

    def app(self, port: int) -> web.Application:
        """Return the application, which listens on this port of loopback."""
        self._url = f"http://127.0.0.1:{port}"
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/setup/{token}", self.enter),
                web.get("/", self.page),
                web.get("/created", self.created),
                web.get("/style.css", self.style),
            ]
        )
        return application

    @property
    def address(self) -> str:
        """The address for the operator; it works once."""
        return f"{self._url}/setup/{self._token}"

    async def enter(self, request: web.Request) -> web.Response:
        """Exchange the token for a cookie, once."""
        token, self._token = self._token, None
        if token is None or not _is_same(token, request.match_info["token"]):
            self._token = token  # a wrong guess uses nothing up
            raise web.HTTPForbidden(text="This address works once. End `ootbot init` and start it again.")
        redirect = web.HTTPSeeOther("/")
        redirect.set_cookie(SETUP_COOKIE, self._session, httponly=True, samesite="Lax", path="/")
        raise redirect

    async def page(self, request: web.Request) -> web.Response:
        """Show the next App to register, or that all is done."""
        self._require_session(request)
        if len(self.made) == len(self._wanted.roles):
            self.finished.set()
            return self._render(
                "done.html",
                made=self.made,
                files=self._files,
                allowlist=self._files.allowlist(self._wanted),
                url=self._wanted.public_url,
            )
        if not self._asked and is_enterprise_server(self._wanted.github_api_url):
            version = await server_version(self._http, self._wanted.github_api_url)
            self._wanted, self._asked = replace(self._wanted, server_version=version), True
        role = self._wanted.roles[len(self.made)]
        wanted = self._wanted.manifest(role)
        sent = wanted.as_sent(
            name=self._wanted.app_name(role),
            public_url=self._wanted.public_url,
            redirect_url=f"{self._url}/created",
        )
        if self._wanted.private:
            sent["public"] = False
        problem, self._problem = self._problem, ""
        return self._render(
            "register.html",
            wanted=wanted,
            sent=sent,
            raw=json.dumps(sent),
            action=self._wanted.new_app_url(self._state),
            owner=self._wanted.organization or "the account that is signed in",
            github=self._wanted.github_url,
            problem=problem,
            step=(len(self.made) + 1, len(self._wanted.roles)),
        )

    async def created(self, request: web.Request) -> web.Response:
        """Take GitHub's code, fetch the App with it and write the files."""
        self._require_session(request)
        async with self._turn:
            if not _is_same(self._state, request.query.get("state", "")):
                raise web.HTTPForbidden(
                    text="This answer does not belong to this registration: go back to the first page."
                )
            try:
                await self._take(request.query.get("code", ""))
            except RetryLater as error:
                raise web.HTTPServiceUnavailable(text=f"{error}. Reload this page to try again.") from None
            except (GitHubRefused, OSError) as error:
                self._problem = str(error)
            self._state = secrets.token_urlsafe(24)
        raise web.HTTPSeeOther("/")

    async def style(self, _: web.Request) -> web.Response:
        """Send the stylesheet; cached, since the last page may be read after the server has stopped."""
        return web.Response(
            text=STYLE, content_type="text/css", headers={"Cache-Control": "private, max-age=3600"}
        )

    async def _take(self, code: str) -> None:
        if not code.isalnum():
            raise GitHubRefused(400, "the code is missing or malformed")
        role = self._wanted.roles[len(self.made)]
        registered = await exchange_code(
            self._http, self._clock, api_url=self._wanted.github_api_url, code=code
        )
        if role == "relay":
            self._files.add_relay(registered)
        else:
            self._files.begin(self._wanted, role, registered)
        self.made.append(registered)
        self._tell(
            f"registered {registered.html_url} (App {registered.app_id}); its key is in {self._files.key(role)}"
        )

    def _require_session(self, request: web.Request) -> None:
        if not _is_same(self._session, request.cookies.get(SETUP_COOKIE, "")):
            raise web.HTTPForbidden(text="Open the address that `ootbot init` printed, in one browser.")

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Answer only under our own host name, against DNS rebinding, and with a strict content policy."""
        if f"http://{request.host}" != self._url:
            raise web.HTTPForbidden(text=f"This page answers at {self._url} only.")
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as answer:
            self._harden(answer)
            raise
        self._harden(response)
        return response

    def _harden(self, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = (
            "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
            f"form-action {self._wanted.github_url}"
        )
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["Referrer-Policy"] = "origin"  # GitHub may want to see where the form comes from
        response.headers["X-Content-Type-Options"] = "nosniff"

    def _render(self, template: str, **values: Any) -> web.Response:
        text = self._templates.get_template(template).render(values)
        return web.Response(text=text, content_type="text/html")


def _read_conversion(body: bytes) -> _Conversion:
    try:
        return msgspec.json.decode(body, type=_Conversion)
    except msgspec.MsgspecError as error:  # never with the body: it holds the key
        raise GitHubRefused(201, f"this is not what GitHub gives for a new App: {error}") from None


async def _give_secret(http: aiohttp.ClientSession, clock: Clock, api_url: str, given: _Conversion) -> str:
    """Set a webhook secret on an App that GitHub made without one; returns it."""
    secret = secrets.token_hex(32)
    app = GitHubApp(app_id=given.id, private_key=given.pem, api_url=api_url, http=http, clock=clock)
    await app.as_app().patch("/app/hook/config", data={"secret": secret})
    return secret


def _is_same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
