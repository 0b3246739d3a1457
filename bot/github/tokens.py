"""The App's identity at GitHub, and installation tokens: narrowed to one repository, cached, renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jwt
import structlog
from cachetools import TTLCache
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bot.core.errors import GitHubRefused, Misconfigured, NotInstalled, RetryLater
from bot.github.responses import MOVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.clock import Clock

TOKEN_CACHED = 50 * 60  # seconds a token is used: it is valid for 60 minutes
INSTALLATION_CACHED = 10 * 60  # seconds an installation id is cached
TOKEN_KNOWN_AFTER = 5_000  # milliseconds after which every one of GitHub's servers knows a fresh token


@dataclass(frozen=True, kw_only=True)
class Token:
    """An installation token, and when it was created in epoch milliseconds."""

    value: str = field(repr=False)
    created_at: int


RepositoryId = Callable[[str], Awaitable[int | None]]  # which a repository's name is pinned to
KeyLoader = Callable[[str], RSAPrivateKey]


class Tokens:
    """The tokens of one App. `call` makes a call as the App itself and returns the decoded response."""

    def __init__(
        self, call: Callable[..., Awaitable[Any]], clock: Clock, pinned: RepositoryId | None = None
    ) -> None:
        self._call = call
        self._pinned = pinned
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
        pinned = await self._pinned(repo) if self._pinned and not by_name else None
        key = (
            repo.casefold(),
            str(pinned),
            *(f"{name}:{level}" for name, level in sorted(permissions.items())),
        )
        async with self._locks.setdefault(key, asyncio.Lock()):
            if renew:
                self._cached.pop(key, None)
            if key not in self._cached:
                cached = repo.casefold() in self._installations
                value = await self._create(repo, pinned, permissions, retry=cached)
                self._cached[key] = Token(value=value, created_at=self._clock.now())
            return self._cached[key]

    def unknown_for(self, token: Token) -> float:
        """Return the seconds until every one of GitHub's servers knows a token; 0 when they do."""
        wait = token.created_at + TOKEN_KNOWN_AFTER - self._clock.now()
        return (
            max(min(wait, TOKEN_KNOWN_AFTER), 0) / 1000
        )  # the clock may have been ahead when it was created

    async def _create(
        self, repo: str, pinned: int | None, permissions: Mapping[str, str], *, retry: bool
    ) -> str:
        """Create a token; with `retry` a refusal may only mean that the App was reinstalled meanwhile."""
        installation = await self._installation(repo)
        only = {"repositories": [repo.partition("/")[2]]} if pinned is None else {"repository_ids": [pinned]}
        wanted = {**only, "permissions": dict(permissions)}
        path = f"/app/installations/{installation}/access_tokens"
        try:
            answer = await self._call("POST", path, wanted)
        except GitHubRefused as error:
            _require_valid_key(error)
            self._installations.pop(repo.casefold(), None)
            if retry:
                return await self._create(repo, pinned, permissions, retry=False)
            which = repo if pinned is None else f"{repo}, repository {pinned}"
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
    """Raise RetryLater when GitHub rejects the App's own JWT: that says nothing about a repository."""
    if error.status == 401:
        reason = (
            f"GitHub does not accept the App's key: check APP_ID, PRIVATE_KEY and the clock ({error.message})"
        )
        raise RetryLater(reason, after=60) from error


log = structlog.get_logger("bot.github.tokens")

TOLERANCE = 20_000  # milliseconds two clocks may differ
LIFETIME = 9 * 60  # seconds of a JWT; GitHub allows ten minutes
BACKDATED = 60  # seconds, for small differences between the clocks
SIGNED_EVERY = 60  # seconds: signing takes a millisecond, and many calls may come at once


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
            claims = {"iat": now - BACKDATED, "exp": now + LIFETIME, "iss": str(self._app_id)}
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
        if abs(skew - self.skew) < TOLERANCE:
            return
        log.error(
            "this machine's clock is wrong: set it, callers' tokens are judged by it", seconds=-skew / 1000
        )
        self.skew = skew
        self._signed = (0, "")


def load_key(private_key: str) -> RSAPrivateKey:
    """Return the App's key; raises Misconfigured where it is none. Checking it takes as long as rendering a page."""
    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Misconfigured([f"OOTBOT_PRIVATE_KEY cannot be used: {error}"]) from None
    if not isinstance(key, RSAPrivateKey):
        raise Misconfigured(["OOTBOT_PRIVATE_KEY is not an RSA key: use the .pem file GitHub offered"])
    return key
