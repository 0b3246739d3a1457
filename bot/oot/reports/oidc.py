"""Verification of OpenID Connect tokens: a bearer token of a configured issuer -> verified claims."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType

import aiohttp
import jwt
import msgspec
from aiohttp import web

from bot.core import metrics, text
from bot.core.errors import Rejected, in_words
from bot.core.feature import Finding, error, ok

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.clock import Clock
    from bot.core.setting_types import IssuerConfig, Required
    from bot.ops.doctor import Target

LEEWAY = 60  # seconds
MOST_TOKEN = 8192  # characters
CHECKS: Any = {
    "require": ["exp", "iat", "iss", "aud"],
    "verify_aud": False,  # checked below: several may be accepted, a list never is
    "verify_exp": False,  # checked below, against our own clock
    "verify_iat": False,
    "verify_nbf": False,
}

Verified = NewType("Verified", dict[str, Any])  # made by Verifier only
COOLDOWN = 60_000  # milliseconds between two fetches of one issuer's keys
REFRESH = 3600 * 1000  # milliseconds after which keys are fetched again: a revoked one is trusted no longer
KEYS_LIFE = 24 * 3600 * 1000  # milliseconds old keys serve while the issuer is down
CHECK_TIMEOUT = aiohttp.ClientTimeout(total=10)
TIMEOUT = aiohttp.ClientTimeout(total=5)
MOST_KEYS = 1024 * 1024  # bytes of a key set
LEAST_KEY = 2048  # bits


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Who is calling: what the issuer signed, or what a static key stands for."""

    repository: str
    repository_id: str | None = None
    run_id: str | None = None
    run_attempt: int | None = None
    check_run_id: str | None = None
    assigned: bool = False  # the operator assigned the repository: its name cannot be taken over
    key_id: str | None = None  # of the static key used instead of a token


class _Header(msgspec.Struct):
    alg: Any = None
    kid: Any = ""


class _Hint(msgspec.Struct):
    iss: Any = None


_header, _hint = msgspec.json.Decoder(_Header), msgspec.json.Decoder(_Hint)


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
        self._issuers = {issuer.issuer: IssuerKeys(issuer, http, clock) for issuer in issuers}

    async def verify(self, token: str) -> Claims:
        """Return the claims of a valid token; raises Rejected 401, 403, or 503 when no keys can be had."""
        if not token or len(token) > MOST_TOKEN:
            raise invalid_token("send an OpenID Connect token as `Authorization: Bearer <token>`")
        header, hint = _peek(token)
        if header.alg != "RS256":
            raise invalid_token("the token must be signed with RS256")
        issuer = self._issuers.get(str(hint.iss))
        if issuer is None:
            raise invalid_token("the token's issuer is not one this bot trusts (OIDC_ISSUERS)")
        if not isinstance(header.kid, str) or not header.kid:
            raise unpublished_key()
        key = await issuer.key(header.kid)
        try:
            claims = jwt.decode(token, key, algorithms=["RS256"], issuer=issuer.config.issuer, options=CHECKS)
        except (jwt.PyJWTError, ValueError) as error:
            raise invalid_token(f"the token is not valid: {error}") from None
        accepted = issuer.config.audiences or self._audiences
        if _audience(claims) not in accepted:
            raise invalid_token(f"the token is for another audience: ask for {' or '.join(accepted)}")
        self._check_times(claims, issuer.config.longest_life)
        return _read_claims(Verified(claims), issuer.config)

    def _check_times(self, claims: dict[str, Any], longest_life: int) -> None:
        now = self._clock.now() / 1000
        exp, iat, nbf = (_time(claims, name) for name in ("exp", "iat", "nbf"))
        if exp <= now - LEEWAY:
            raise invalid_token("the token has expired: ask for a new one right before reporting")
        if max(iat, nbf) > now + LEEWAY:
            raise invalid_token("the token is not valid yet: check the clocks")
        if exp - iat > longest_life:
            raise invalid_token(f"the token lives longer than {longest_life} s: ask for a short-lived one")


VERIFIER: web.AppKey[Verifier] = web.AppKey("verifier", Verifier)


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
        """Return the key of an id; raises Rejected 401 if there is none, 503 if that is unknown for now."""
        before = self._fetches
        if kid not in self._fresh() or (self._is_old() and self._may_fetch()):
            async with self._fetching:
                if self._may_fetch() and (kid not in self._fresh() or self._is_old()):
                    await self._fetch()
        keys = self._fresh()
        if kid in keys:
            return keys[kid]
        if keys and self._fetches > before:
            raise unpublished_key()
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
        """Whether a time lies in this span of the past; a future time is from before the clock was corrected."""
        return at is not None and 0 <= self._clock.now() - at <= span

    async def _fetch(self) -> None:
        self._tried_at = self._clock.now()
        keys: dict[str, jwt.PyJWK] = {}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with self._http.get(
                self.config.keys_url, timeout=TIMEOUT, allow_redirects=False
            ) as response:
                if response.status == 200:
                    keys = _read_keys(await _read_bounded(response))
        (self._brought if keys else self._failed).inc()
        if keys:  # an empty answer is never believed
            self._keys, self._fetched_at = keys, self._tried_at
            self._fetches += 1


def invalid_token(detail: str) -> Rejected:
    """Return the refusal of a token that proves nothing."""
    return Rejected(401, "invalid_token", detail, headers={"WWW-Authenticate": 'Bearer realm="ootbot"'})


def unpublished_key() -> Rejected:
    """Return the refusal of a token signed with a key that no issuer publishes."""
    return invalid_token("the token is signed with a key its issuer does not publish")


async def check_issuers(target: Target) -> list[Finding]:
    """doctor: whether the signing keys of every issuer can be fetched."""
    findings = []
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
            findings.append(ok("issuer", f"{issuer.issuer} has {text.plural(count, 'key')}"))
        else:
            todo = "check OIDC_ISSUERS and the way out to it; reports are refused with 503 meanwhile"
            findings.append(error("issuer", f"no keys at {issuer.keys_url}: {status}", todo))
    return findings


def _audience(claims: dict[str, Any]) -> object:
    """Return the one audience of a token, which some issuers write as a list; one for several is for none of them."""
    audience = claims["aud"]
    return audience[0] if isinstance(audience, list) and len(audience) == 1 else audience


def _peek(token: str) -> tuple[_Header, _Hint]:
    """Return who a token claims to be signed by; not to be trusted until the signature is checked."""
    try:
        header, payload, _ = token.split(".")
        return _header.decode(_from_base64(header)), _hint.decode(_from_base64(payload))
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise invalid_token("the bearer token is not a JWT") from None


def _from_base64(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "==")


def _read_claims(claims: Verified, issuer: IssuerConfig) -> Claims:
    """Read the claims we use; raises Rejected 401 without a repository, 403 where a required claim differs."""
    _require(claims, issuer.required_claims)
    attempt = _text(claims, issuer.run_attempt_claim)
    if attempt and not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
        raise invalid_token(f"the token's {issuer.run_attempt_claim} is not a whole number")
    return Claims(
        repository=_repository(claims, issuer),
        repository_id=_text(claims, issuer.repository_id_claim),
        run_id=_text(claims, issuer.run_id_claim),
        run_attempt=int(attempt) if attempt else None,
        check_run_id=_text(claims, issuer.check_run_id_claim),
        assigned=bool(issuer.repositories),
    )


def _repository(claims: Verified, issuer: IssuerConfig) -> str:
    """Return the repository of a token: its own claim, or what the operator assigned to the provider's id."""
    if issuer.repository_claim:
        named = claims.get(issuer.repository_claim)
        if not isinstance(named, str) or not named:
            raise invalid_token("the token names no repository")
        return named
    parts = [_text(claims, name) or "" for name in issuer.repositories_claims]
    if not all(parts) or (len(parts) > 1 and any("/" in part for part in parts)):
        raise invalid_token(f"the token has no usable {' and '.join(issuer.repositories_claims)}")
    identity = "/".join(parts)
    if identity not in issuer.repositories:
        detail = f"no repository is assigned to {identity[:200]} of {issuer.issuer} (OIDC_ISSUERS)"
        raise Rejected(403, "not_listed", detail)
    assigned = issuer.repositories[identity]
    if isinstance(assigned, str):
        return assigned
    _require(claims, assigned.required_claims)
    return assigned.repository


def _require(claims: Verified, required: Mapping[str, Required]) -> None:
    """Check pinned claims; raises Rejected 403 where one has none of its values."""
    for name, value in required.items():
        if _as_text(claims.get(name)) not in ((value,) if isinstance(value, str) else value):
            raise Rejected(403, "forbidden", f"the token's claim {name} is not what this bot requires")


def _time(claims: dict[str, Any], name: str) -> float:
    at = claims.get(name, 0)
    if not isinstance(at, int | float) or isinstance(at, bool) or not math.isfinite(at):
        raise invalid_token(f"the token's {name} must be a number")
    return at


def _text(claims: Verified, name: str) -> str | None:
    """Return a claim that identifies something; None where it is absent or the issuer has none of that name."""
    value = claims.get(name) if name else None
    if value is None or value == "":
        return None
    text = _as_text(value)
    if text is None or isinstance(value, bool):
        raise invalid_token(f"the token's {name} is neither text nor a whole number")
    return text


def _as_text(value: object) -> str | None:
    """Return a claim's value as it is written in required_claims; None for what cannot be compared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """Return a body, nothing if it is larger than any key set."""
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
