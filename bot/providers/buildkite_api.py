"""Calls to Buildkite's REST API: each token with the pause that Buildkite asks for, or that a refusal calls for.

https://buildkite.com/docs/apis/rest-api
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.core.errors import NotYet, RetryLater
from bot.core.resources import Resource
from bot.github.client import Location
from bot.github.download import Downloads, Unanswered

if TYPE_CHECKING:
    from pathlib import Path

    from bot.context import Context
    from bot.github.download import Download
    from bot.providers.settings import Provider

REFUSED, LIMITED = frozenset({401, 403}), 429
REFUSED_PAUSE, LIMITED_PAUSE = 3_600.0, 60.0  # seconds; a limit is one of requests in a minute


class TokenRefused(RetryLater):
    """Buildkite does not accept the API token, or it may not read what was asked for."""


class _Pause(NamedTuple):
    until: int  # epoch milliseconds
    reason: str


class BuildkiteApi:
    """What this process knows of the tokens of the settings."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._port, self._proxy = context.settings.port, context.settings.proxy
        self._downloads: dict[str, Downloads] = {}  # by the API's address
        self._pauses: dict[str, _Pause] = {}  # by the variable with the token

    def check_pause(self, provider: Provider) -> None:
        """Raise NotYet while a token is to be left alone."""
        pause = self._pauses.get(provider.api_variable)
        if pause and pause.until > (now := self._clock.now()):
            raise NotYet(pause.reason, after=(pause.until - now) / 1000)

    async def fetch(self, provider: Provider, path: str, into: Path, *, most: int) -> Download:
        """Download what a path of the API leads to; raises TokenRefused, or what `Downloads.fetch` does."""
        sent = {"Authorization": f"Bearer {provider.api_token}", "Accept": "text/plain, */*"}
        location = Location(url=provider.api_url + path, headers=sent)
        try:
            return await self._downloads_of(provider.api_url).fetch(location, into, most=most)
        except Unanswered as error:
            if not error.by_api:
                raise
            if error.status == LIMITED:
                self._pause(
                    provider, error.after or LIMITED_PAUSE, "Buildkite limits the API token's requests"
                )
            elif error.status in REFUSED:
                words = f"Buildkite answered {error.status} to the API token in {provider.api_variable}"
                self._pause(provider, REFUSED_PAUSE, words)
                words += f": it has to be valid, with the scopes {' and '.join(provider.api_scopes)}"
                raise TokenRefused(words, after=REFUSED_PAUSE) from error
            raise

    async def close(self) -> None:
        """Close the connections."""
        for one in self._downloads.values():
            await one.close()

    def _pause(self, provider: Provider, seconds: float, reason: str) -> None:
        until = self._clock.now() + round(seconds * 1000)
        self._pauses[provider.api_variable] = _Pause(until, reason)

    def _downloads_of(self, url: str) -> Downloads:
        if url not in self._downloads:
            self._downloads[url] = Downloads(api_url=url, own_port=self._port, proxy=self._proxy)
        return self._downloads[url]


BUILDKITE_API: Resource[BuildkiteApi] = Resource("buildkite_api", BuildkiteApi)
