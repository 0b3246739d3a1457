"""Verification of OpenID Connect tokens: a bearer token of a configured issuer -> verified claims.

RS256 only, `exp` required, 60 s leeway. Where the keys come from: `bot.oot.reports.issuer_keys`.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType

import jwt
import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.oot.reports.issuer_keys import IssuerKeys, invalid, unpublished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp

    from bot.core.clock import Clock
    from bot.core.setting_types import IssuerConfig, Required

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
            raise invalid("send an OpenID Connect token as `Authorization: Bearer <token>`")
        header, hint = _peek(token)
        if header.alg != "RS256":
            raise invalid("the token must be signed with RS256")
        issuer = self._issuers.get(str(hint.iss))
        if issuer is None:
            raise invalid("the token's issuer is not one this bot trusts (OIDC_ISSUERS)")
        if not isinstance(header.kid, str) or not header.kid:
            raise unpublished()
        key = await issuer.key(header.kid)
        try:
            claims = jwt.decode(token, key, algorithms=["RS256"], issuer=issuer.config.issuer, options=CHECKS)
        except (jwt.PyJWTError, ValueError) as error:
            raise invalid(f"the token is not valid: {error}") from None
        accepted = issuer.config.audiences or self._audiences
        if _audience(claims) not in accepted:
            raise invalid(f"the token is for another audience: ask for {' or '.join(accepted)}")
        self._check_times(claims, issuer.config.longest_life)
        return _read(Verified(claims), issuer.config)

    def _check_times(self, claims: dict[str, Any], longest_life: int) -> None:
        now = self._clock.now() / 1000
        exp, iat, nbf = (_time(claims, name) for name in ("exp", "iat", "nbf"))
        if exp <= now - LEEWAY:
            raise invalid("the token has expired: ask for a new one right before reporting")
        if max(iat, nbf) > now + LEEWAY:
            raise invalid("the token is not valid yet: check the clocks")
        if exp - iat > longest_life:
            raise invalid(f"the token lives longer than {longest_life} s: ask for a short-lived one")


def _audience(claims: dict[str, Any]) -> object:
    """Return the one audience of a token, which some issuers write as a list; one for several is for none of them."""
    audience = claims["aud"]
    return audience[0] if isinstance(audience, list) and len(audience) == 1 else audience


def _peek(token: str) -> tuple[_Header, _Hint]:
    """Return what says by whom a token claims to be signed; believed only once the signature is checked."""
    try:
        header, payload, _ = token.split(".")
        return _header.decode(_from_base64(header)), _hint.decode(_from_base64(payload))
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise invalid("the bearer token is not a JWT") from None


def _from_base64(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "==")


def _read(claims: Verified, issuer: IssuerConfig) -> Claims:
    """Read the claims we use; raises Rejected 401 without a repository, 403 where a required claim differs."""
    _require(claims, issuer.required_claims)
    attempt = _text(claims, issuer.run_attempt_claim)
    if attempt and not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
        raise invalid(f"the token's {issuer.run_attempt_claim} is not a whole number")
    return Claims(
        repository=_repository(claims, issuer),
        repository_id=_text(claims, issuer.repository_id_claim),
        run_id=_text(claims, issuer.run_id_claim),
        run_attempt=int(attempt) if attempt else None,
        check_run_id=_text(claims, issuer.check_run_id_claim),
        assigned=bool(issuer.repositories),
    )


def _repository(claims: Verified, issuer: IssuerConfig) -> str:
    """Return whose token it is: by its own claim, or as the operator assigned the provider's id."""
    if issuer.repository_claim:
        named = claims.get(issuer.repository_claim)
        if not isinstance(named, str) or not named:
            raise invalid("the token names no repository")
        return named
    parts = [_text(claims, name) or "" for name in issuer.repositories_claims]
    if not all(parts) or (len(parts) > 1 and any("/" in part for part in parts)):
        raise invalid(f"the token has no usable {' and '.join(issuer.repositories_claims)}")
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
        raise invalid(f"the token's {name} must be a number")
    return at


def _text(claims: Verified, name: str) -> str | None:
    """Return a claim that identifies something; None where it is absent or the issuer has none of that name."""
    value = claims.get(name) if name else None
    if value is None or value == "":
        return None
    text = _as_text(value)
    if text is None or isinstance(value, bool):
        raise invalid(f"the token's {name} is neither text nor a whole number")
    return text


def _as_text(value: object) -> str | None:
    """Return a claim's value as it is written in required_claims; None for what cannot be compared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


VERIFIER: web.AppKey[Verifier] = web.AppKey("verifier", Verifier)
