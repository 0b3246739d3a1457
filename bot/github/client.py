"""Calls of one GitHub App: App JWT, installation tokens, a gidgethub client for each repository and need.

Access never follows a webhook body: the installation is looked up at GitHub by the repository's name, and each token
is narrowed to that repository and to the permissions of the call.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import msgspec
from cachetools import LRUCache, TTLCache
from gidgethub.abc import GitHubAPI

from bot import __version__
from bot.core import metrics, traces
from bot.core.errors import GitHubRefused, GitHubUnavailable, RetryLater, in_words
from bot.github import enterprise_server, refusals, responses
from bot.github.rate_limiter import Budgets, RateLimiter
from bot.github.responses import Response
from bot.github.tokens import Identity, Tokens, load_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.clock import Clock
    from bot.github.enterprise_server import Lack
    from bot.github.tokens import KeyLoader, RepositoryId, Token

API_VERSION = "2022-11-28"
PERMISSION_LIFE = 5 * 60  # seconds a person's role in a repository is cached
MAX_CONCURRENT = 20  # calls; GitHub allows 100
ETAG_CACHE_SIZE = 100  # responses
TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)


UNKNOWN_APP = b"Integration not found"  # GitHub's answer where the App's id is wrong
KEY_REFUSED = "GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock"


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where to fetch some content, valid for a minute; `headers` only where that is the API itself."""

    url: str = field(repr=False)  # it works without further authentication
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class GitHubApp:
    """One GitHub App: its identity, tokens and rate limits."""

    def __init__(
        self,
        *,
        app_id: int,
        private_key: str,
        api_url: str,
        http: aiohttp.ClientSession,
        clock: Clock,
        writes_per_min: int = 60,
        budgets: Budgets | None = None,
        pinned: RepositoryId | None = None,
        load_key: KeyLoader = load_key,
    ) -> None:
        self.app_id = app_id
        self.api_url = api_url
        self._identity = Identity(app_id, load_key(private_key), clock)
        self._http = http
        self._clock = clock
        self._limiter = RateLimiter(clock, writes_per_min=writes_per_min, budgets=budgets)
        self.budget_usage = self._limiter.usage
        self.tokens = Tokens(self._call, clock, pinned)
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENT)
        self._roles: TTLCache[tuple[str, str], str | None] = TTLCache(
            10_000, PERMISSION_LIFE, timer=lambda: clock.now() / 1000
        )
        self._etag_cache: LRUCache[str, Any] = LRUCache(ETAG_CACHE_SIZE)
        self.server_version = ""  # of a GitHub Enterprise Server, once it has answered; empty: github.com
        self.refusal = ""  # why GitHub did not accept the App's key when it was last used

    def client(self, repo: str, *, since: int | None = None, **permissions: str) -> Client:
        """Return a client for one repository with just these permissions, such as `checks="write"`.

        `since` is when GitHub announced what is called about, epoch milliseconds: while it is young, a refusal that may
        only mean that GitHub does not know it yet raises RetryLater (see `bot.github.refusals`).
        """
        return Client(self, repo, permissions, since=since)

    def by_name(self, repo: str, **permissions: str) -> Client:
        """Return a client for whichever repository has a name now, to find out which one that is."""
        return Client(self, repo, permissions, by_name=True)

    def low_priority(self, repo: str, *, since: int | None = None, **permissions: str) -> Client:
        """Return a client that writes only while there is budget to spare: gates and verdicts take precedence."""
        return Client(self, repo, permissions, low_priority=True, since=since)

    def caching(self, repo: str, *, since: int | None = None, **permissions: str) -> Client:
        """Return a client with an ETag cache: an unchanged response is free of charge. Never modify its results."""
        return Client(self, repo, permissions, etag_cache=self._etag_cache, since=since)

    async def role(self, repo: str, login: str) -> str | None:
        """Return a person's permission in a repository as GitHub names it, None where it names none. Cached."""
        key = (repo.casefold(), login.casefold())
        if key not in self._roles:
            client = self.client(repo, metadata="read")
            url = client.path("collaborators/{login}/permission")
            try:
                found = await client.getitem(url, {"login": login})
            except GitHubRefused:
                found = {}
            self._roles[key] = found.get("permission")
        return self._roles[key]

    def as_app(self) -> AppClient:
        """Return a client that acts as the App itself: installations, the delivery log."""
        return AppClient(self)

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = {"accept": "application/vnd.github+json", "content-type": "application/json"}
        response = await self.request_as_app(method, self.api_url + path, headers, sent)
        responses.raise_for_status(response)
        return msgspec.json.decode(response.body)

    async def request_as_app(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """Make a call as the App itself; a wrong clock of ours is noticed, and corrected for from then on."""
        for last_try in (False, True):
            skew = self._identity.skew
            signed = {**headers, "authorization": f"Bearer {self._identity.jwt()}"}
            response = await self.request("app", method, url, signed, body)
            if response.status != 401 or last_try:
                break
            self._identity.correct_clock(response.headers.get("date", ""))
            if self._identity.skew == skew:  # it may have been corrected for another call meanwhile
                break
        unknown = response.status == 404 and UNKNOWN_APP in response.body
        self.refusal = KEY_REFUSED if response.status == 401 or unknown else ""
        return response

    async def request(
        self,
        who: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        low_priority: bool = False,
        only_headers: bool = False,
    ) -> Response:
        """Make one HTTP call within the limits of the installation `who`.

        Returns any response below 500 that is no rate limit. Raises RetryLater when GitHub asks to wait, is broken,
        or cannot be reached: a write may have happened then. With `only_headers` the body of a success stays unread.
        """
        if not url.startswith(self.api_url + "/"):
            raise GitHubRefused(400, f"{url} is not below {self.api_url}: our token goes nowhere else")
        await self._limiter.acquire(who, method, url, low_priority=low_priority)
        sent = {
            **headers,
            "user-agent": f"ootbot/{__version__}",
            "x-github-api-version": API_VERSION,
        }
        response = await self._send(method, url, sent, body, only_headers=only_headers)
        self.server_version = response.headers.get(enterprise_server.HEADER, "")[:20]
        wait = responses.wait_for(response.status, response.headers, response.body, now=self._clock.now())
        metrics.count_call(self.app_id, response.status, limited=wait is not None)
        if wait is not None:
            await self._limiter.block(who, wait)
            raise RetryLater(f"{method} {url}: GitHub asks to wait", after=wait)
        if response.status >= 500:
            raise GitHubUnavailable(f"{method} {url}: it answered {response.status}")
        return response

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, only_headers: bool
    ) -> Response:
        where = url.partition("?")[0]
        async with self._semaphore:
            with traces.span(method, kind="client", http_request_method=method, url_full=where) as span:
                try:
                    async with self._http.request(
                        method, url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
                    ) as response:
                        read = b"" if only_headers and response.ok else await response.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    metrics.count_call(self.app_id, None)
                    raise GitHubUnavailable(f"{method} {url}: {in_words(error)}") from error
                if span:
                    span.set_attribute("http.response.status_code", response.status)
        named = {name.lower(): value for name, value in response.headers.items()}
        return Response(status=response.status, headers=named, body=read)

    def age(self, since: int) -> int:
        """Return how many milliseconds ago a time was."""
        return self._clock.now() - since

    async def until_known(self, token: Token) -> None:
        """Wait until every one of GitHub's servers knows a token."""
        await self._clock.sleep(self.tokens.unknown_for(token))


class AppClient(GitHubAPI):
    """gidgethub's client as the App itself, with our own transport and errors."""

    def __init__(self, app: GitHubApp, etag_cache: LRUCache[str, Any] | None = None) -> None:
        super().__init__("ootbot", base_url=app.api_url, cache=etag_cache)
        self._app = app

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        return self._read(method, url, await self._app.request_as_app(method, url, headers, body))

    def _read(self, method: str, url: str, response: Response) -> tuple[int, Mapping[str, str], bytes]:
        """Return what gidgethub reads of a response; raises GitHubRefused, or RetryLater for one that is not final."""
        try:
            return responses.for_gidgethub(response)
        except GitHubRefused as error:
            raise self._judged(error, method, url) from error

    def _judged(self, error: GitHubRefused, method: str, url: str) -> GitHubRefused | RetryLater:
        return refusals.judge_refusal(error, method, url.removeprefix(self._app.api_url), age=self._age())

    def _age(self) -> int | None:
        """Return how old what is called about is, None where the caller does not know."""
        return None

    def lacks(self, what: Lack) -> bool:
        """Whether this GitHub is a server that lacks something of github.com; known once it has answered."""
        return enterprise_server.lacks(self._app.server_version, what)

    async def sleep(self, seconds: float) -> None:
        """Never called: the queue does the waiting."""


class Client(AppClient):
    """gidgethub's client for one repository: `getitem`, `getiter`, `post`, `patch`, `put`, `delete`."""

    def __init__(
        self,
        app: GitHubApp,
        repo: str,
        permissions: Mapping[str, str],
        etag_cache: LRUCache[str, Any] | None = None,
        *,
        low_priority: bool = False,
        by_name: bool = False,
        since: int | None = None,
    ) -> None:
        super().__init__(app, etag_cache)
        self._since = since
        self._by_name = by_name
        self._low_priority = low_priority
        self._repo = repo
        self._permissions = permissions

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        return self._read(method, url, await self._call_signed(method, url, headers, body))

    def _age(self) -> int | None:
        return None if self._since is None else self._app.age(self._since)

    async def location(self, path: str) -> Location:
        """Return where GitHub has the content of a log or an artifact; raises as any other call does.

        An Enterprise Server may answer with the content itself: then it is fetched from there, with our token.
        """
        url = self._app.api_url + path
        headers = {"accept": "application/vnd.github+json"}
        response = await self._call_signed("GET", url, headers, b"", only_headers=True)
        if response.status in responses.MOVED and (found := response.headers.get("location")):
            return Location(url=found)
        self._read("GET", url, response)
        token = await self._app.tokens.get(self._repo, self._permissions)
        return Location(url=url, headers={"authorization": f"Bearer {token.value}"})

    async def _call_signed(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, only_headers: bool = False
    ) -> Response:
        """Make a call with a token; a fresh one may take seconds until all of GitHub's servers know it."""
        call = partial(self._app.request, low_priority=self._low_priority, only_headers=only_headers)
        who = self._repo.partition("/")[0].casefold()  # an account has one installation
        for last_try in (False, True):
            token = await self._app.tokens.get(
                self._repo, self._permissions, renew=last_try, by_name=self._by_name
            )
            signed = {**headers, "authorization": f"Bearer {token.value}"}
            fresh = self._app.tokens.unknown_for(token) > 0
            response = await call(who, method, url, signed, body)
            if fresh and responses.token_may_be_unknown(response.status, response.body):
                await self._app.until_known(token)
                response = await call(who, method, url, signed, body)
            if response.status != 401:
                return response
        raise RetryLater(f"{self._repo}: GitHub refuses a fresh token", after=10)

    async def repository(self) -> dict[str, Any]:
        """Return GitHub's description of the repository."""
        found: dict[str, Any] = await self.getitem(self.path("").rstrip("/"))
        return found

    def path(self, rest: str) -> str:
        """Return the URL of something inside this client's repository."""
        owner, _, name = self._repo.partition("/")
        return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/{rest}"
