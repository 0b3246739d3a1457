"""Calls of one GitHub App: App JWT, installation tokens, a gidgethub client for each repository and need.

Tokens are narrowed to one repository, cached and renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import jwt
import msgspec
import structlog
from cachetools import LRUCache, TTLCache
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from gidgethub.abc import GitHubAPI

from bot import __version__
from bot.core import metrics, traces
from bot.core.errors import (
    GitHubRefused,
    GitHubUnavailable,
    Misconfigured,
    NotInstalled,
    RetryLater,
    in_words,
)
from bot.github import responses
from bot.github.rate_limiter import Budgets, RateLimiter
from bot.github.responses import MOVED, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.clock import Clock
    from bot.github.responses import Lack

TOKEN_CACHED = 50 * 60  # seconds a token is used: it is valid for 60 minutes
INSTALLATION_CACHED = 10 * 60  # seconds an installation id is cached
TOKEN_KNOWN_AFTER = 5_000  # milliseconds after which every one of GitHub's servers knows a fresh token
RepositoryId = Callable[[str], Awaitable[int | None]]  # of the repository that a name means
KeyLoader = Callable[[str], RSAPrivateKey]
log = structlog.get_logger("bot.github.client")

CLOCK_TOLERANCE = 20_000  # milliseconds two clocks may differ
JWT_LIFETIME = 9 * 60  # seconds of a JWT; GitHub allows ten minutes
BACKDATED = 60  # seconds, for small differences between the clocks
SIGNED_EVERY = 60  # seconds: signing takes a millisecond, and many calls may come at once
API_VERSION = "2022-11-28"
PERMISSION_LIFE = 5 * 60  # seconds a person's role in a repository is cached
MAX_CONCURRENT = 20  # calls; GitHub allows 100
ETAG_CACHE_SIZE = 100  # responses
TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)

UNKNOWN_APP = b"Integration not found"  # GitHub's answer where the App's id is wrong
KEY_REFUSED = "GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock"


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token, and when it was created in epoch milliseconds."""

    value: str = field(repr=False)
    created_at: int


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where to fetch some content, valid for a minute; `headers` are set only for the API itself."""

    url: str = field(repr=False)  # it works without further authentication
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Tokens:
    """The tokens of one App. `call` makes a call as the App itself and returns the decoded response."""

    def __init__(
        self, call: Callable[..., Awaitable[Any]], clock: Clock, repository_ids: RepositoryId | None = None
    ) -> None:
        self._call = call
        self._repository_ids = repository_ids
        self._clock = clock
        seconds = self._seconds
        self._installations: TTLCache[str, int] = TTLCache(10_000, INSTALLATION_CACHED, timer=seconds)
        self._cached: TTLCache[tuple[str, ...], Token] = TTLCache(10_000, TOKEN_CACHED, timer=seconds)
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}

    async def get(
        self, repo: str, permissions: Mapping[str, str], *, renew: bool = False, by_name: bool = False
    ) -> Token:
        """Return a token for one repository; raises NotInstalled where the App has no access.

        Raises GitHubRefused where the repository has another name now. With `by_name`, whichever repository has it.
        """
        repository_id = await self._repository_ids(repo) if self._repository_ids and not by_name else None
        key = (
            repo.casefold(),
            str(repository_id),
            *(f"{name}:{level}" for name, level in sorted(permissions.items())),
        )
        async with self._locks.setdefault(key, asyncio.Lock()):
            if renew:
                self._cached.pop(key, None)
            if key not in self._cached:
                cached = repo.casefold() in self._installations
                value = await self._create(repo, repository_id, permissions, retry=cached)
                self._cached[key] = Token(value=value, created_at=self._clock.now())
            return self._cached[key]

    def unknown_for(self, token: Token) -> float:
        """Return the seconds until every one of GitHub's servers knows a token; 0 when they do."""
        wait = token.created_at + TOKEN_KNOWN_AFTER - self._clock.now()
        return (
            max(min(wait, TOKEN_KNOWN_AFTER), 0) / 1000
        )  # the clock may have been ahead when it was created

    async def _create(
        self, repo: str, repository_id: int | None, permissions: Mapping[str, str], *, retry: bool
    ) -> str:
        """Create a token; with `retry` a refusal may only mean that the App was reinstalled meanwhile."""
        installation = await self._installation(repo)
        only = (
            {"repositories": [repo.partition("/")[2]]}
            if repository_id is None
            else {"repository_ids": [repository_id]}
        )
        wanted = {**only, "permissions": dict(permissions)}
        path = f"/app/installations/{installation}/access_tokens"
        try:
            answer = await self._call("POST", path, wanted)
        except GitHubRefused as error:
            _require_valid_key(error)
            self._installations.pop(repo.casefold(), None)
            if retry:
                return await self._create(repo, repository_id, permissions, retry=False)
            which = repo if repository_id is None else f"{repo}, repository {repository_id}"
            raise NotInstalled(error.status, f"no token for {which}: {error.message}") from error
        token: str = answer["token"]
        return token

    async def _installation(self, repo: str) -> int:
        key = repo.casefold()
        if key not in self._installations:
            owner, _, name = repo.partition("/")
            path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/installation"
            try:
                answer = await self._call("GET", path)
            except GitHubRefused as error:
                _require_valid_key(error)
                if error.status in MOVED:
                    message = f"{repo} was renamed or moved: its present name is needed"
                    raise GitHubRefused(error.status, message) from error
                message = f"the App is not installed on {repo}: install it there"
                raise NotInstalled(error.status, message) from error
            self._installations[key] = int(answer["id"])
        return self._installations[key]

    def _seconds(self) -> float:
        return self._clock.now() / 1000


def _require_valid_key(error: GitHubRefused) -> None:
    """Raise RetryLater when GitHub rejects the App's own JWT, which says nothing about a repository."""
    if error.status == 401:
        reason = (
            f"GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock ({error.message})"
        )
        raise RetryLater(reason, after=60) from error


class Identity:
    """One App's key, and how far GitHub's clock is from ours."""

    def __init__(self, app_id: int, private_key: RSAPrivateKey, clock: Clock) -> None:
        self._app_id = app_id
        self._private_key = private_key
        self._clock = clock
        self.skew = 0.0  # milliseconds that GitHub's clock is ahead of ours, once that exceeds the tolerance
        self._signed = (0, "")  # when, in seconds by GitHub's clock, and the JWT

    def jwt(self) -> str:
        """Return a JWT of the App, valid now by GitHub's clock."""
        now = round(self._clock.now() + self.skew) // 1000
        signed_at, token = self._signed
        if not 0 <= now - signed_at < SIGNED_EVERY:
            claims = {"iat": now - BACKDATED, "exp": now + JWT_LIFETIME, "iss": str(self._app_id)}
            token = jwt.encode(claims, self._private_key, algorithm="RS256")
            self._signed = (now, token)
        return token

    def correct_clock(self, date: str) -> None:
        """Compare GitHub's clock (an HTTP date) with ours, and correct for the difference."""
        try:
            theirs = parsedate_to_datetime(date).timestamp() * 1000
        except ValueError:
            return
        skew = theirs - self._clock.now()
        if abs(skew - self.skew) < CLOCK_TOLERANCE:
            return
        log.error(
            "this machine's clock is wrong: set it, callers' tokens are judged by it", seconds=-skew / 1000
        )
        self.skew = skew
        self._signed = (0, "")


def load_key(private_key: str) -> RSAPrivateKey:
    """Return the App's key; raises Misconfigured for an invalid one. Checking takes as long as rendering a page."""
    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Misconfigured([f"OOTBOT_PRIVATE_KEY cannot be used: {error}"]) from None
    if not isinstance(key, RSAPrivateKey):
        raise Misconfigured(["OOTBOT_PRIVATE_KEY is not an RSA key: use the .pem file GitHub offered"])
    return key


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
        repository_ids: RepositoryId | None = None,
        load_key: KeyLoader = load_key,
    ) -> None:
        self.app_id = app_id
        self.api_url = api_url
        self._identity = Identity(app_id, load_key(private_key), clock)
        self._http = http
        self._clock = clock
        self._limiter = RateLimiter(clock, writes_per_min=writes_per_min, budgets=budgets)
        self.budget_usage = self._limiter.usage
        self.tokens = Tokens(self._call, clock, repository_ids)
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
        only mean that GitHub does not know it yet raises RetryLater (see `bot.github.responses`).
        """
        return Client(self, repo, permissions, since=since)

    def by_name(self, repo: str, **permissions: str) -> Client:
        """Return a client for whichever repository has this name now, to find out which one that is."""
        return Client(self, repo, permissions, by_name=True)

    def low_priority(self, repo: str, *, since: int | None = None, **permissions: str) -> Client:
        """Return a client that writes only while there is budget to spare: gates and verdicts take precedence."""
        return Client(self, repo, permissions, low_priority=True, since=since)

    def caching(self, repo: str, *, since: int | None = None, **permissions: str) -> Client:
        """Return a client with an ETag cache: an unchanged response is free of charge. Never modify its results."""
        return Client(self, repo, permissions, etag_cache=self._etag_cache, since=since)

    async def role(self, repo: str, login: str) -> str | None:
        """Return a person's permission in a repository, as GitHub names it, or None. Cached."""
        key = (repo.casefold(), login.casefold())
        if key not in self._roles:
            client = self.client(repo, metadata="read")
            url = client.path("collaborators/{login}/permission")
            try:
                answer = await client.getitem(url, {"login": login})
            except GitHubRefused:
                answer = {}
            self._roles[key] = answer.get("permission")
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
        """Make a call as the App itself; a wrong clock of ours is noticed and corrected from then on."""
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
        self.server_version = response.headers.get(responses.ENTERPRISE_HEADER, "")[:20]
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
        return responses.judge_refusal(error, method, url.removeprefix(self._app.api_url), age=self._age())

    def _age(self) -> int | None:
        """Return the age of the object that is called about; None where the caller does not know it."""
        return None

    def lacks(self, what: Lack) -> bool:
        """Whether this GitHub is a server that lacks a feature of github.com; known once it has answered."""
        return responses.lacks(self._app.server_version, what)

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
        if response.status in responses.MOVED and (address := response.headers.get("location")):
            return Location(url=address)
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
        described: dict[str, Any] = await self.getitem(self.path("").rstrip("/"))
        return described

    def path(self, rest: str) -> str:
        """Return the URL of something inside this client's repository."""
        owner, _, name = self._repo.partition("/")
        return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/{rest}"
