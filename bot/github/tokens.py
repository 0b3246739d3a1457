"""Installation tokens: narrowed to one repository and a call's permissions, cached, renewed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cachetools import TTLCache

from bot.core.errors import GitHubRefused, NotInstalled, RetryLater
from bot.github.responses import MOVED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.core.clock import Clock

TOKEN_CACHED = 50 * 60  # seconds a token is used: it is valid for 60 minutes
INSTALLATION_CACHED = 10 * 60  # seconds an installation id is cached
TOKEN_KNOWN_AFTER = 5_000  # milliseconds after which every one of GitHub's servers knows a fresh token


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token, and when it was created in epoch milliseconds."""

    value: str = field(repr=False)
    created_at: int


class Tokens:
    """The tokens of one App. `call` makes a call as the App itself and returns the decoded response."""

    def __init__(self, call: Callable[..., Awaitable[Any]], clock: Clock) -> None:
        self._call = call
        self._clock = clock
        seconds = self._seconds
        self._installations: TTLCache[str, int] = TTLCache(10_000, INSTALLATION_CACHED, timer=seconds)
        self._cached: TTLCache[tuple[str, ...], Token] = TTLCache(10_000, TOKEN_CACHED, timer=seconds)
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}

    async def get(self, repo: str, permissions: Mapping[str, str], *, renew: bool = False) -> Token:
        """Return a token for one repository; raises NotInstalled where the App has no access.

        Raises GitHubRefused where the repository has another name now.
        """
        key = (repo.casefold(), *(f"{name}:{level}" for name, level in sorted(permissions.items())))
        async with self._locks.setdefault(key, asyncio.Lock()):
            if renew:
                self._cached.pop(key, None)
            if key not in self._cached:
                cached = repo.casefold() in self._installations
                value = await self._create(repo, permissions, retry=cached)
                self._cached[key] = Token(value=value, created_at=self._clock.now())
            return self._cached[key]

    def unknown_for(self, token: Token) -> float:
        """Return the seconds until every one of GitHub's servers knows a token; 0 when they do."""
        wait = token.created_at + TOKEN_KNOWN_AFTER - self._clock.now()
        return (
            max(min(wait, TOKEN_KNOWN_AFTER), 0) / 1000
        )  # the clock may have been ahead when it was created

    async def _create(self, repo: str, permissions: Mapping[str, str], *, retry: bool) -> str:
        """Create a token; with `retry` a refusal may only mean that the App was reinstalled meanwhile."""
        installation = await self._installation(repo)
        wanted = {"repositories": [repo.partition("/")[2]], "permissions": dict(permissions)}
        path = f"/app/installations/{installation}/access_tokens"
        try:
            answer = await self._call("POST", path, wanted)
        except GitHubRefused as error:
            _require_valid_key(error)
            self._installations.pop(repo.casefold(), None)
            if retry:
                return await self._create(repo, permissions, retry=False)
            raise NotInstalled(error.status, f"no token for {repo}: {error.message}") from error
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
    """Raise RetryLater when GitHub rejects the App's own JWT: that says nothing about a repository."""
    if error.status == 401:
        reason = (
            f"GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock ({error.message})"
        )
        raise RetryLater(reason, after=60) from error
