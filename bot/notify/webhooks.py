"""Posting to receivers: one attempt, without redirects, within seconds, and not into our own network unasked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

import bot
from bot.core.errors import in_words
from bot.core.escaping import one_line
from bot.core.resources import Resource
from bot.github.download_address import AddressGuard, DownloadRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.context import Context

CONNECT, WHOLE = 5, 10  # seconds: to connect, in all
MOST_ANSWER = 500  # bytes of an answer that are read, to be shown
LONGEST_WAIT = 3_600  # seconds that a receiver may ask us to wait
FINAL = frozenset({400, 410, 413, 422})  # the same notice will never be taken


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What became of one attempt; without an error it was taken."""

    error: str = ""
    final: bool = False  # another attempt would end the same
    after: float | None = None  # seconds the receiver asks to wait


class Webhooks:
    """Posts to receivers: in one session to those that may be in our own network, in another to all others."""

    def __init__(self, *, own_port: int, proxy: str | None) -> None:
        self._guards = {
            internal: AddressGuard(own_port=own_port, proxy=proxy, internal=internal)
            for internal in (False, True)
        }
        self._sessions = {
            internal: aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=guard.resolver(), limit=20, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                proxy=proxy,
                timeout=aiohttp.ClientTimeout(total=WHOLE, connect=CONNECT),
            )
            for internal, guard in self._guards.items()
        }

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, internal: bool) -> Attempt:
        """Post a body once."""
        sent = {"Content-Type": "application/json", "User-Agent": f"ootbot/{bot.__version__}", **headers}
        try:
            address = await self._guards[internal].parse(url)
            response = await self._sessions[internal].post(
                address, data=body, headers=sent, allow_redirects=False
            )
            async with response:
                return await _judge(response)
        except DownloadRefused as error:
            hint = "" if internal else "; internal = true allows addresses in our own network"
            return Attempt(error=f"the address is refused: {error}{hint}", final=True)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Attempt(error=in_words(error)[:300])


async def _judge(response: aiohttp.ClientResponse) -> Attempt:
    status = response.status
    if 200 <= status < 300:
        return Attempt()
    if 300 <= status < 400:
        return Attempt(
            error=f"it answered {status}: redirects are not followed, write the final url", final=True
        )
    said = one_line((await response.content.read(MOST_ANSWER)).decode("utf-8", "replace"))[:200]
    asked = response.headers.get("Retry-After", "")
    after = (
        min(float(asked), LONGEST_WAIT) if asked.isascii() and asked.isdigit() and len(asked) < 9 else None
    )
    return Attempt(error=f"it answered {status}: {said}".rstrip(": "), final=status in FINAL, after=after)


def _make(context: Context) -> Webhooks:
    return Webhooks(own_port=context.settings.port, proxy=context.settings.proxy)


WEBHOOKS: Resource[Webhooks] = Resource("notify webhooks", _make)
