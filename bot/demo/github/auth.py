"""Who is calling? App tokens and installation tokens, checked as GitHub checks them."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import jwt

from bot.demo.github.accounts import App, Token
from bot.demo.github.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jwt.types import Options

    from bot.demo.github.accounts import Installation
    from bot.demo.github.state import Repo
    from bot.demo.github.world import World

LONGEST_LIFE = 600  # seconds an App token may live from now
GRACE = 60  # seconds that clocks may differ
TOKEN_LENGTH = 520
# What a token that is not known everywhere yet gets: itself, its permissions or its repositories are missing.
UNKNOWN = ((401, "Bad credentials"), (403, "Resource not accessible by integration"), (404, "Not Found"))
RANKS = {"read": 1, "write": 2, "admin": 3}


def caller(world: World, authorization: str) -> App | Token:
    """Return the App or installation token that an Authorization header stands for; or 401."""
    scheme, _, credential = authorization.partition(" ")
    if not credential:
        raise Refused(401, "Requires authentication")
    if scheme.lower() not in {"bearer", "token"}:
        raise Refused(401, "Bad credentials")
    if credential.startswith("ghs_"):
        return _token(world, credential)
    return _app(world, credential)


def may(permissions: Mapping[str, str], needs: Iterable[str]) -> bool:
    """Tell whether one of the needs, such as `checks:write`, is granted; none needed: yes."""
    wanted = [need.split(":") for need in needs]
    return not wanted or any(
        RANKS.get(permissions.get(name, ""), 0) >= RANKS[level] for name, level in wanted
    )


def covers(token: Token, repo: Repo) -> bool:
    """Tell whether a token reaches a repository at this moment."""
    inside = repo.id in token.installation.repository_ids
    return inside and (token.repository_ids is None or repo.id in token.repository_ids)


def mint(
    world: World,
    installation: Installation,
    *,
    repository_ids: frozenset[int] | None,
    permissions: Mapping[str, str],
) -> Token:
    """Make an installation token, good for an hour unless the world says otherwise."""
    head = f"ghs_{installation.app.app_id}_{secrets.token_urlsafe(24)}."
    rest = secrets.token_urlsafe(200) + "." + secrets.token_urlsafe(300)
    token = Token(
        value=(head + rest)[:TOKEN_LENGTH],
        installation=installation,
        repository_ids=repository_ids,
        permissions=dict(permissions),
        expires_at=world.now() + world.token_life,
        known_at=world.now() + world.replication,
    )
    world.tokens[token.value] = token
    return token


def _token(world: World, credential: str) -> Token:
    token = world.tokens.get(credential)
    if token is None or token.expires_at <= world.now():
        raise Refused(401, "Bad credentials")
    if token.installation.id not in world.installations:
        raise Refused(401, "Bad credentials")
    if world.now() < token.known_at:
        status, message = UNKNOWN[world.new_id() % len(UNKNOWN)]
        raise Refused(status, message)
    if token.installation.suspended_at is not None:
        raise Refused(403, "This installation has been suspended")
    return token


def _app(world: World, credential: str) -> App:
    app = _issuer(world, credential)
    claims = _claims(app, credential)
    now = world.now() / 1000
    expires, issued = claims.get("exp"), claims.get("iat")
    if not isinstance(expires, int | float):
        raise Refused(401, "Missing 'expiration' claim ('exp') in assertion")
    if expires <= now:
        raise Refused(401, "'Expiration time' claim ('exp') must be in the future")
    if expires > now + LONGEST_LIFE:
        raise Refused(401, "'Expiration time' claim ('exp') is too far in the future")
    if not isinstance(issued, int | float) or issued > now + GRACE:
        raise Refused(401, "'Issued at' claim ('iat') must be an Integer of the past")
    return app


def _issuer(world: World, credential: str) -> App:
    """Return the App that a JWT names, before anything in it is believed."""
    try:
        issuer = jwt.decode(credential, options={"verify_signature": False}).get("iss")
    except jwt.InvalidTokenError:
        raise Refused(401, "A JSON web token could not be decoded") from None
    for app in world.apps.values():
        if app.public_key_pem and str(issuer) in {str(app.app_id), app.client_id}:
            return app
    raise Refused(401, "'Issuer' claim ('iss') must be an Integer: the App's id")


def _claims(app: App, credential: str) -> dict[str, Any]:
    """Return the signed claims; times are compared by the caller, with the simulation's clock."""
    unchecked: Options = {
        "verify_exp": False,
        "verify_iat": False,
        "verify_nbf": False,
        "verify_iss": False,
        "verify_sub": False,
        "verify_aud": False,
    }
    try:
        claims: dict[str, Any] = jwt.decode(
            credential, app.public_key_pem, algorithms=["RS256"], options=unchecked
        )
    except jwt.InvalidTokenError:
        raise Refused(401, "A JSON web token could not be decoded") from None
    return claims
