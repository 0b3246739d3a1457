"""The signing keys of one OpenID Connect issuer: fetched when needed, kept while they may be trusted.

A key that is not known is fetched once a minute at most; keys had are used for a day while the issuer is down.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
import jwt
import msgspec

from bot.core import metrics, text
from bot.core.errors import Rejected, in_words
from bot.core.finding import Finding, error, ok

if TYPE_CHECKING:
    from bot.core.clock import Clock
    from bot.core.setting_types import IssuerConfig
    from bot.ops.doctor.target import Target

COOLDOWN = 60_000  # milliseconds between two fetches of one issuer's keys
REFRESH = 3600 * 1000  # milliseconds after which keys are fetched again: a revoked one is trusted no longer
KEYS_LIFE = 24 * 3600 * 1000  # milliseconds old keys serve while the issuer is down
CHECK_TIMEOUT = aiohttp.ClientTimeout(total=10)
TIMEOUT = aiohttp.ClientTimeout(total=5)
MOST_KEYS = 1024 * 1024  # bytes of a key set
LEAST_KEY = 2048  # bits


class IssuerKeys:
    """One issuer and its keys."""

    def __init__(self, config: IssuerConfig, http: aiohttp.ClientSession, clock: Clock) -> None:
        self.config = config
        self._http = http
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._fetches = 0  # that brought keys
        self._fetching = asyncio.Lock()
        self._brought = metrics.KEY_FETCHES.labels(config.issuer, "ok")
        self._failed = metrics.KEY_FETCHES.labels(config.issuer, "failed")

    async def key(self, kid: str) -> jwt.PyJWK:
        """Return the key of that id; raises Rejected 401 when there is none, 503 when that cannot be told now."""
        before = self._fetches
        if kid not in self._fresh() or (self._is_old() and self._may_fetch()):
            async with self._fetching:
                if self._may_fetch() and (kid not in self._fresh() or self._is_old()):
                    await self._fetch()
        keys = self._fresh()
        if kid in keys:
            return keys[kid]
        if keys and self._fetches > before:
            raise unpublished()
        wait = max(COOLDOWN - (self._clock.now() - (self._tried_at or 0)), 1000) // 1000
        what = (
            f"this key of {self.config.issuer} is new" if keys else f"no keys of {self.config.issuer} are had"
        )
        detail = f"{what}, and they cannot be fetched right now: send it again in {wait} s"
        raise Rejected(503, "issuer_unavailable", detail, headers={"Retry-After": str(wait)})

    def _fresh(self) -> dict[str, jwt.PyJWK]:
        too_old = self._fetched_at is None or self._clock.now() - self._fetched_at > KEYS_LIFE
        return {} if too_old else self._keys

    def _is_old(self) -> bool:
        return not self._was_within(REFRESH, self._fetched_at)

    def _may_fetch(self) -> bool:
        return not self._was_within(COOLDOWN - 1, self._tried_at)

    def _was_within(self, span: int, at: int | None) -> bool:
        """Whether that was so long ago at most; what lies ahead is from before the clock was put right."""
        return at is not None and 0 <= self._clock.now() - at <= span

    async def _fetch(self) -> None:
        self._tried_at = self._clock.now()
        found: dict[str, jwt.PyJWK] = {}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with self._http.get(
                self.config.keys_url, timeout=TIMEOUT, allow_redirects=False
            ) as response:
                if response.status == 200:
                    found = _read_keys(await _read_bounded(response))
        (self._brought if found else self._failed).inc()
        if found:  # an empty answer is never believed
            self._keys, self._fetched_at = found, self._tried_at
            self._fetches += 1


def invalid(detail: str) -> Rejected:
    """Return the refusal of a token that proves nothing."""
    return Rejected(401, "invalid_token", detail, headers={"WWW-Authenticate": 'Bearer realm="ootbot"'})


def unpublished() -> Rejected:
    """Return the refusal of a token signed with a key that no issuer publishes."""
    return invalid("the token is signed with a key its issuer does not publish")


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """Return a body, nothing when it is larger than any key set."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > MOST_KEYS:
            return b""
    return bytes(content)


def _read_keys(content: bytes) -> dict[str, jwt.PyJWK]:
    """Return the RSA keys of a key set that may sign, by id; those that cannot be used are left out."""
    try:
        listed = msgspec.json.decode(content)["keys"]
        return {key["kid"]: made for key in listed if (made := _read_key(key)) is not None}
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return {}


def _read_key(key: Any) -> jwt.PyJWK | None:
    if not isinstance(key, dict) or key.get("kty") != "RSA" or not isinstance(key.get("kid"), str):
        return None
    if key.get("use", "sig") != "sig" or key.get("alg", "RS256") != "RS256":
        return None
    try:
        made = jwt.PyJWK(key, algorithm="RS256")
    except (jwt.PyJWTError, KeyError, TypeError, AttributeError, ValueError):
        return None
    return made if made.key.key_size >= LEAST_KEY else None


async def check(target: Target) -> list[Finding]:
    """doctor: whether the signing keys of every issuer can be fetched."""
    found = []
    for issuer in target.settings.oidc_issuers:
        try:
            async with target.http.get(
                issuer.keys_url, timeout=CHECK_TIMEOUT, allow_redirects=False
            ) as answer:
                status, body = str(answer.status), await answer.read()
            count = len(msgspec.json.decode(body)["keys"]) if status == "200" else 0
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            status, count = in_words(problem), 0
        except (msgspec.DecodeError, KeyError, TypeError):
            count = 0
        if count:
            found.append(ok("issuer", f"{issuer.issuer} has {text.plural(count, 'key')}"))
        else:
            todo = "check OIDC_ISSUERS and the way out to it; reports are refused with 503 meanwhile"
            found.append(error("issuer", f"no keys at {issuer.keys_url}: {status}", todo))
    return found
