"""Which token may a call carry? Installation tokens: narrowed to one repository and some permissions, kept, renewed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cachetools import TTLCache

from bot.domain.dispatch import MOVED
from bot.errors import GitHubRefused, NotInstalled, RetryLater

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.clock import Clock

TOKEN_LIFE = 50 * 60  # seconds a token is used of the 60 minutes it lives
INSTALLATION_LIFE = 10 * 60  # seconds an installation id is believed
TOKEN_KNOWN_AFTER = 5_000  # milliseconds after which every one of GitHub's servers knows a fresh token


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token, and when it was made in epoch milliseconds."""

    value: str = field(repr=False)
    made_at: int


class Tokens:
    """The tokens of one App. `ask` makes a call as the App itself and returns what it was answered."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        seconds = self._seconds
        self._installations: TTLCache[str, int] = TTLCache(10_000, INSTALLATION_LIFE, timer=seconds)
        self._kept: TTLCache[tuple[str, ...], Token] = TTLCache(10_000, TOKEN_LIFE, timer=seconds)
        self._minting: dict[tuple[str, ...], asyncio.Lock] = {}

    async def get(self, repo: str, permissions: Mapping[str, str], *, renew: bool = False) -> Token:
        """Return a token for one repository; raises NotInstalled where the App has no access.

        Raises GitHubRefused where the repository has another name now.
        """
        key = (repo.casefold(), *(f"{name}:{level}" for name, level in sorted(permissions.items())))
        async with self._minting.setdefault(key, asyncio.Lock()):
            if renew:
                self._kept.pop(key, None)
            if key not in self._kept:
                believed = repo.casefold() in self._installations
                value = await self._mint(repo, permissions, again=believed)
                self._kept[key] = Token(value=value, made_at=self._clock.now())
            return self._kept[key]

    def unknown_for(self, token: Token) -> float:
        """Return the seconds until every one of GitHub's servers knows a token; 0 when they do."""
        wait = token.made_at + TOKEN_KNOWN_AFTER - self._clock.now()
        return max(min(wait, TOKEN_KNOWN_AFTER), 0) / 1000  # the clock may have been ahead when it was made

    async def _mint(self, repo: str, permissions: Mapping[str, str], *, again: bool) -> str:
        """Make a token; with `again` a refusal may only mean that the App was installed anew meanwhile."""
        installation = await self._installation(repo)
        wanted = {"repositories": [repo.partition("/")[2]], "permissions": dict(permissions)}
        path = f"/app/installations/{installation}/access_tokens"
        try:
            answer = await self._ask("POST", path, wanted)
        except GitHubRefused as error:
            _believed(error)
            self._installations.pop(repo.casefold(), None)
            if again:
                return await self._mint(repo, permissions, again=False)
            raise NotInstalled(error.status, f"no token for {repo}: {error.message}") from error
        token: str = answer["token"]
        return token

    async def _installation(self, repo: str) -> int:
        key = repo.casefold()
        if key not in self._installations:
            owner, _, name = repo.partition("/")
            path = f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}/installation"
            try:
                answer = await self._ask("GET", path)
            except GitHubRefused as error:
                _believed(error)
                if error.status in MOVED:
                    message = f"{repo} was renamed or moved: its present name is needed"
                    raise GitHubRefused(error.status, message) from error
                message = f"the App is not installed on {repo}: install it there"
                raise NotInstalled(error.status, message) from error
            self._installations[key] = int(answer["id"])
        return self._installations[key]

    def _seconds(self) -> float:
        return self._clock.now() / 1000


def _believed(error: GitHubRefused) -> None:
    """Raise RetryLater when GitHub does not believe who we are: that says nothing about a repository."""
    if error.status == 401:
        reason = (
            f"GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock ({error.message})"
        )
        raise RetryLater(reason, after=60) from error
