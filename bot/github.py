"""How does one GitHub App talk to GitHub? App JWT, installation tokens, one gidgethub client a repository and need.

Access never follows a webhook body: the installation is asked of GitHub by the repository's name, and each token is
narrowed to that repository and to the permissions of the call.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import msgspec
from cachetools import LRUCache, TTLCache
from gidgethub.abc import GitHubAPI

from bot import __version__, metrics, traces
from bot.domain import throttle
from bot.errors import GitHubAway, GitHubRefused, RetryLater
from bot.identity import Identity
from bot.pace import Books, Pace
from bot.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.clock import Clock
    from bot.tokens import Token

API_VERSION = "2022-11-28"
PERMISSION_LIFE = 5 * 60  # seconds GitHub's word on what a person may do is believed
IN_FLIGHT = 20  # calls at once; GitHub allows 100
ANSWERS = 100  # answers kept to be confirmed by their ETag
TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class GitHubApp:
    """One GitHub App: its identity, its tokens, its pace."""

    def __init__(
        self,
        *,
        app_id: int,
        private_key: str,
        api_url: str,
        http: aiohttp.ClientSession,
        clock: Clock,
        writes_per_min: int = 60,
        books: Books | None = None,
    ) -> None:
        self.app_id = app_id
        self.api_url = api_url
        self._identity = Identity(app_id, private_key, clock)
        self._http = http
        self._clock = clock
        self._pace = Pace(clock, writes_per_min=writes_per_min, books=books)
        self.budgets = self._pace.budgets
        self.tokens = Tokens(self._ask, clock)
        self._gate = asyncio.Semaphore(IN_FLIGHT)
        self._roles: TTLCache[tuple[str, str], str | None] = TTLCache(
            10_000, PERMISSION_LIFE, timer=lambda: clock.now() / 1000
        )
        self._answers: LRUCache[str, Any] = LRUCache(ANSWERS)

    def client(self, repo: str, **permissions: str) -> Client:
        """Return a client for one repository with just these permissions, such as `checks="write"`."""
        return Client(self, repo, permissions)

    def sparing(self, repo: str, **permissions: str) -> Client:
        """Return a client that writes only while there is budget to spare: gates and verdicts go first."""
        return Client(self, repo, permissions, spare=True)

    def reader(self, repo: str, **permissions: str) -> Client:
        """Return a client that remembers what it read: an unchanged answer costs nothing. Never change one."""
        return Client(self, repo, permissions, answers=self._answers)

    async def role(self, repo: str, login: str) -> str | None:
        """Return what a person may do in a repository, in GitHub's word; None when it says nothing. Cached."""
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
        """Return a client that speaks as the App itself: installations, the delivery log."""
        return AppClient(self)

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = {"accept": "application/vnd.github+json", "content-type": "application/json"}
        answer = await self.request_as_app(method, self.api_url + path, headers, sent)
        raise_for(answer)
        return msgspec.json.decode(answer.body)

    async def request_as_app(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        """Make a call as the App itself; a clock of ours that is wrong is noticed, and made up for from then on."""
        for last_try in (False, True):
            signed = {**headers, "authorization": f"Bearer {self._identity.jwt()}"}
            answer = await self.request("app", method, url, signed, body)
            if answer.status != 401 or last_try or not self._identity.learn(answer.headers.get("date", "")):
                break
        return answer

    async def request(
        self,
        who: str,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        spare: bool = False,
    ) -> Answer:
        """Make one HTTP call at the pace allowed to `who`; any answer below 500 that is no rate limit returns.

        Raises RetryLater when GitHub asks to wait, is broken, or cannot be reached: a write may have happened then.
        """
        if not url.startswith(self.api_url + "/"):
            raise GitHubRefused(400, f"{url} is not below {self.api_url}: our token goes nowhere else")
        await self._pace.turn(who, method, url, spare=spare)
        sent = {
            **headers,
            "user-agent": f"ootbot/{__version__}",
            "x-github-api-version": API_VERSION,
        }
        answer = await self._send(method, url, sent, body)
        wait = throttle.wait_for(answer.status, answer.headers, answer.body, now=self._clock.now())
        metrics.called(self.app_id, answer.status, limited=wait is not None)
        if wait is not None:
            await self._pace.block(who, wait)
            raise RetryLater(f"{method} {url}: GitHub asks to wait", after=wait)
        if answer.status >= 500:
            raise GitHubAway(f"{method} {url}: it answered {answer.status}")
        return answer

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        where = url.partition("?")[0]
        async with self._gate:
            with traces.span(method, kind="client", http_request_method=method, url_full=where) as span:
                try:
                    async with self._http.request(
                        method, url, data=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
                    ) as response:
                        read = await response.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    metrics.called(self.app_id, None)
                    raise GitHubAway(f"{method} {url}: {type(error).__name__} {error}".strip()) from error
                if span:
                    span.set_attribute("http.response.status_code", response.status)
        named = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status, headers=named, body=read)

    async def until_known(self, token: Token) -> None:
        """Wait until every one of GitHub's servers knows a token."""
        await self._clock.sleep(self.tokens.unknown_for(token))


class AppClient(GitHubAPI):
    """gidgethub's client, speaking as the App, with our own transport and our own reading of errors."""

    def __init__(self, app: GitHubApp, answers: LRUCache[str, Any] | None = None) -> None:
        super().__init__("ootbot", base_url=app.api_url, cache=answers)
        self._app = app

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        return readable(await self._app.request_as_app(method, url, headers, body))

    async def sleep(self, seconds: float) -> None:
        """Never called: waiting is the queue's business."""


class Client(AppClient):
    """gidgethub's client for one repository: `getitem`, `getiter`, `post`, `patch`, `put`, `delete`."""

    def __init__(
        self,
        app: GitHubApp,
        repo: str,
        permissions: Mapping[str, str],
        answers: LRUCache[str, Any] | None = None,
        *,
        spare: bool = False,
    ) -> None:
        super().__init__(app, answers)
        self._spare = spare
        self._repo = repo
        self._permissions = permissions

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        who = self._repo.partition("/")[0].casefold()  # one installation an account
        for last_try in (False, True):
            token = await self._app.tokens.get(self._repo, self._permissions, renew=last_try)
            signed = {**headers, "authorization": f"Bearer {token.value}"}
            fresh = self._app.tokens.unknown_for(token) > 0
            answer = await self._app.request(who, method, url, signed, body, spare=self._spare)
            if fresh and throttle.token_may_be_unknown(answer.status, answer.body):
                await self._app.until_known(token)
                answer = await self._app.request(who, method, url, signed, body, spare=self._spare)
            if answer.status != 401:
                return readable(answer)
        raise RetryLater(f"{self._repo}: GitHub refuses a fresh token", after=10)

    async def repository(self) -> dict[str, Any]:
        """Return what GitHub says of the repository itself."""
        found: dict[str, Any] = await self.getitem(self.path("").rstrip("/"))
        return found

    def path(self, rest: str) -> str:
        """Return the URL of something inside this client's repository."""
        owner, _, name = self._repo.partition("/")
        return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/{rest}"


def readable(answer: Answer) -> tuple[int, Mapping[str, str], bytes]:
    """Return what gidgethub can read without surprises: our own errors instead, no odd headers."""
    raise_for(answer)
    kind = answer.headers.get("content-type", "")
    if answer.body and "json" in kind:
        try:
            # checked without making objects of it: a page of pull requests has megabytes, and gidgethub reads it again
            msgspec.json.decode(answer.body, type=msgspec.Raw)
            answer.body.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RetryLater(f"GitHub's answer {answer.status} is not JSON") from error
    kept = {name: answer.headers[name] for name in ("link", "etag") if name in answer.headers}
    if "json" in kind:
        kept["content-type"] = "application/json"
    return answer.status, kept, answer.body


def raise_for(answer: Answer) -> None:
    """Raise GitHubRefused for anything that is neither a success nor the word that nothing has changed."""
    if answer.status < 300 or answer.status == 304:
        return
    try:
        said = msgspec.json.decode(answer.body)
        message = f"{said.get('message', '')} {said.get('errors', '') or ''}".strip()
    except (msgspec.DecodeError, AttributeError):
        message = answer.body[:200].decode("utf-8", "replace")
    raise GitHubRefused(answer.status, message[:500])
