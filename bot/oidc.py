"""Who vouches for this caller? A bearer token of a configured issuer -> verified claims.

RS256 only, `exp` required, 60 s leeway. Keys are fetched once and kept; an unknown key id asks again at most once a
minute, failures included, and old keys serve up to a day while an issuer is down.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType

import aiohttp
import jwt
import msgspec

from bot.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.clock import Clock
    from bot.parse import IssuerConfig

LEEWAY = 60  # seconds
LONGEST_LIFE = 900  # seconds between iat and exp
MOST_TOKEN = 8192  # characters
COOLDOWN = 60_000  # milliseconds between two fetches of one issuer's keys
KEYS_LIFE = 24 * 3600 * 1000  # milliseconds old keys serve while the issuer is down
TIMEOUT = aiohttp.ClientTimeout(total=5)
MOST_KEYS = 1024 * 1024  # bytes of a key set

Verified = NewType("Verified", dict[str, Any])  # made by Verifier only


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What the issuer signed, as far as we use it."""

    repository: str
    repository_id: str | None
    run_id: str | None
    run_attempt: int | None
    check_run_id: str | None
    token: Verified


class Verifier:
    """Verifies tokens against the configured issuers."""

    def __init__(
        self,
        issuers: Sequence[IssuerConfig],
        *,
        audiences: Sequence[str],
        http: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._audiences = tuple(audiences)
        self._clock = clock
        self._issuers = {issuer.issuer: _Issuer(issuer, http, clock) for issuer in issuers}

    async def verify(self, token: str) -> Claims:
        """Return the claims of a valid token; raises Rejected 401, 403, or 503 when no keys can be had."""
        if not token or len(token) > MOST_TOKEN:
            raise _invalid("send an OpenID Connect token as `Authorization: Bearer <token>`")
        try:
            header = jwt.get_unverified_header(token)
            hint = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _invalid("the bearer token is not a JWT") from None
        if header.get("alg") != "RS256":
            raise _invalid("the token must be signed with RS256")
        issuer = self._issuers.get(str(hint.get("iss")))
        if issuer is None:
            raise _invalid("the token's issuer is not one this bot trusts (OIDC_ISSUERS)")
        key = await issuer.key(str(header.get("kid", "")))
        claims = self._decode(token, key, issuer.config.issuer)
        return _read(claims, issuer.config)

    def _decode(self, token: str, key: jwt.PyJWK, issuer: str) -> Verified:
        options: Any = {
            "require": ["exp", "iat", "iss", "aud"],
            "verify_exp": False,  # checked below, against our own clock
            "verify_iat": False,
            "verify_nbf": False,
            "strict_aud": True,
        }
        claims: dict[str, Any] | None = None
        for audience in self._audiences:
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=["RS256"],
                    audience=audience,
                    issuer=issuer,
                    options=options,
                )
                break
            except jwt.InvalidAudienceError:
                continue
            except (jwt.PyJWTError, ValueError) as error:
                raise _invalid(f"the token is not valid: {error}") from None
        if claims is None:
            raise _invalid(f"the token is for another audience: ask for {' or '.join(self._audiences)}")
        self._check_times(claims)
        return Verified(claims)

    def _check_times(self, claims: dict[str, Any]) -> None:
        now = self._clock.now() / 1000
        exp, iat, nbf = (_time(claims, name) for name in ("exp", "iat", "nbf"))
        if exp <= now - LEEWAY:
            raise _invalid("the token has expired: ask for a new one right before reporting")
        if max(iat, nbf) > now + LEEWAY:
            raise _invalid("the token is not valid yet: check the clocks")
        if exp - iat > LONGEST_LIFE:
            raise _invalid(f"the token lives longer than {LONGEST_LIFE} s: ask for a short-lived one")


class _Issuer:
    """One issuer and its keys."""

    def __init__(self, config: IssuerConfig, http: aiohttp.ClientSession, clock: Clock) -> None:
        self.config = config
        self._http = http
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._fetching = asyncio.Lock()

    async def key(self, kid: str) -> jwt.PyJWK:
        """Return the key of that id; raises Rejected 401 when there is none, 503 when none can be had."""
        if kid not in self._fresh():
            async with self._fetching:
                if kid not in self._fresh() and self._may_fetch():
                    await self._fetch()
        keys = self._fresh()
        if not keys:
            wait = str(COOLDOWN // 1000)
            detail = f"the keys of {self.config.issuer} cannot be had right now: send it again later"
            raise Rejected(503, "issuer_unavailable", detail, headers={"Retry-After": wait})
        if kid not in keys:
            raise _invalid("the token is signed with a key its issuer does not publish")
        return keys[kid]

    def _fresh(self) -> dict[str, jwt.PyJWK]:
        too_old = self._fetched_at is None or self._clock.now() - self._fetched_at > KEYS_LIFE
        return {} if too_old else self._keys

    def _may_fetch(self) -> bool:
        return self._tried_at is None or self._clock.now() - self._tried_at >= COOLDOWN

    async def _fetch(self) -> None:
        self._tried_at = self._clock.now()
        try:
            async with self._http.get(
                self.config.keys_url, timeout=TIMEOUT, allow_redirects=False
            ) as response:
                if response.status != 200 or (response.content_length or 0) > MOST_KEYS:
                    return
                found = _read_keys(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError):
            return
        if found:  # an empty answer is never believed
            self._keys, self._fetched_at = found, self._tried_at


def _read_keys(content: bytes) -> dict[str, jwt.PyJWK]:
    try:
        listed = msgspec.json.decode(content)["keys"]
        wanted = [key for key in listed if key.get("kty") == "RSA" and isinstance(key.get("kid"), str)]
        return {key["kid"]: jwt.PyJWK(key, algorithm="RS256") for key in wanted}
    except (msgspec.DecodeError, jwt.PyJWTError, KeyError, TypeError, AttributeError, ValueError):
        return {}


def _read(claims: Verified, issuer: IssuerConfig) -> Claims:
    """Read the claims we use; raises Rejected 401 without a repository, 403 where a required claim differs."""
    for name, value in issuer.required_claims.items():
        if str(claims.get(name)) != value:
            raise Rejected(403, "forbidden", f"the token's claim {name} is not what this bot requires")
    if issuer.repository_claim:
        repository = claims.get(issuer.repository_claim)
    else:
        repository = issuer.repositories.get(str(claims.get(issuer.repositories_claim)))
    if not isinstance(repository, str) or not repository:
        raise _invalid("the token names no repository")
    attempt = _text(claims, "run_attempt")
    return Claims(
        repository=repository,
        repository_id=_text(claims, "repository_id"),
        run_id=_text(claims, "run_id"),
        run_attempt=int(attempt) if attempt and attempt.isascii() and attempt.isdigit() else None,
        check_run_id=_text(claims, "check_run_id"),
        token=claims,
    )


def _time(claims: dict[str, Any], name: str) -> float:
    at = claims.get(name, 0)
    if not isinstance(at, int | float) or isinstance(at, bool):
        raise _invalid(f"the token's {name} must be a number")
    return at


def _text(claims: Verified, name: str) -> str | None:
    value = claims.get(name)
    return (
        str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
    )


def _invalid(detail: str) -> Rejected:
    return Rejected(401, "invalid_token", detail, headers={"WWW-Authenticate": 'Bearer realm="ootbot"'})
