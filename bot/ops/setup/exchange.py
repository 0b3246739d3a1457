"""Exchange of GitHub's one-time code for a new App's id, key and webhook secret."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from bot import __version__
from bot.core.errors import GitHubRefused, RetryLater, in_words
from bot.github.client import GitHubApp
from bot.github.enterprise_server import HEADER

if TYPE_CHECKING:
    from bot.core.clock import Clock

TIMEOUT = aiohttp.ClientTimeout(total=20)


class _Conversion(msgspec.Struct):
    id: int
    slug: str
    html_url: str
    pem: str
    webhook_secret: str | None = None


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A registered App. Its client secret is not kept: it serves for signing in only."""

    app_id: int
    slug: str
    html_url: str
    private_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)


async def server_version(http: aiohttp.ClientSession, api_url: str) -> str:
    """Return the version of a GitHub Enterprise Server, empty for github.com and where it cannot be asked."""
    try:
        async with http.get(f"{api_url}/meta", timeout=TIMEOUT, allow_redirects=False) as answer:
            return answer.headers.get(HEADER, "")[:20]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""


async def fetch(http: aiohttp.ClientSession, clock: Clock, *, api_url: str, code: str) -> Registered:
    """Return the App; raises GitHubRefused for a code that is used or expired, RetryLater when GitHub is down."""
    url = f"{api_url}/app-manifests/{code}/conversions"
    headers = {"accept": "application/vnd.github+json", "user-agent": f"ootbot/{__version__}"}
    try:
        async with http.post(url, headers=headers, timeout=TIMEOUT, allow_redirects=False) as answer:
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise RetryLater(f"{api_url} cannot be reached: {in_words(error)}") from error
    if answer.status >= 500:
        raise RetryLater(f"GitHub answered {answer.status}")
    if answer.status != 201:
        raise GitHubRefused(answer.status, "the code is used, older than an hour, or not GitHub's")
    given = _read(body)
    secret = given.webhook_secret or await _give_secret(http, clock, api_url, given)
    return Registered(
        app_id=given.id,
        slug=given.slug,
        html_url=given.html_url,
        private_key=given.pem,
        webhook_secret=secret,
    )


def _read(body: bytes) -> _Conversion:
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
