"""Authentication and permissions of API callers: App tokens (JWT) and installation tokens."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.demo.github.accounts import App, Token
from bot.demo.github.faults import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jwt.types import Options

    from bot.demo.github.accounts import Installation
    from bot.demo.github.models import Repo
    from bot.demo.github.state import GitHubState

MAX_LIFETIME = 600  # seconds from now until an App token expires
CLOCK_SKEW = 60  # seconds
TOKEN_LENGTH = 520
# Answers to a token that has not reached all servers: it, its permissions or its repositories are unknown there.
NOT_REPLICATED = (
    (401, "Bad credentials"),
    (403, "Resource not accessible by integration"),
    (404, "Not Found"),
)
RANKS = {"read": 1, "write": 2, "admin": 3}


def caller(state: GitHubState, authorization: str) -> App | Token:
    """Return the App or installation token of an Authorization header; raise 401 for an invalid one."""
    scheme, _, credential = authorization.partition(" ")
    if not credential:
        raise ApiError(401, "Requires authentication")
    if scheme.lower() not in {"bearer", "token"}:
        raise ApiError(401, "Bad credentials")
    if credential.startswith("ghs_"):
        return _token(state, credential)
    return _app(state, credential)


def may(permissions: Mapping[str, str], needs: Iterable[str]) -> bool:
    """Whether one of the needs, such as `checks:write`, is granted, or nothing is needed."""
    pairs = [need.split(":") for need in needs]
    return not pairs or any(RANKS.get(permissions.get(name, ""), 0) >= RANKS[level] for name, level in pairs)


def covers(token: Token, repo: Repo) -> bool:
    """Whether a token currently covers a repository."""
    inside = repo.id in token.installation.repository_ids
    return inside and (token.repository_ids is None or repo.id in token.repository_ids)


def mint(
    state: GitHubState,
    installation: Installation,
    *,
    repository_ids: frozenset[int] | None,
    permissions: Mapping[str, str],
) -> Token:
    """Create an installation token, valid for `token_life`."""
    head = f"ghs_{installation.app.app_id}_{secrets.token_urlsafe(24)}."
    rest = secrets.token_urlsafe(200) + "." + secrets.token_urlsafe(300)
    token = Token(
        value=(head + rest)[:TOKEN_LENGTH],
        installation=installation,
        repository_ids=repository_ids,
        permissions=dict(permissions),
        expires_at=state.now() + state.token_life,
        known_at=state.now() + state.replication,
    )
    state.tokens[token.value] = token
    return token


def _token(state: GitHubState, credential: str) -> Token:
    token = state.tokens.get(credential)
    if token is None or token.expires_at <= state.now():
        raise ApiError(401, "Bad credentials")
    if token.installation.id not in state.installations:
        raise ApiError(401, "Bad credentials")
    if state.now() < token.known_at:
        status, message = NOT_REPLICATED[state.new_id() % len(NOT_REPLICATED)]
        raise ApiError(status, message)
    if token.installation.suspended_at is not None:
        raise ApiError(403, "This installation has been suspended")
    return token


def _app(state: GitHubState, credential: str) -> App:
    app = _issuer(state, credential)
    claims = _claims(app, credential)
    now = state.now() / 1000
    expires, issued = claims.get("exp"), claims.get("iat")
    if not isinstance(expires, int | float):
        raise ApiError(401, "Missing 'expiration' claim ('exp') in assertion")
    if expires <= now:
        raise ApiError(401, "'Expiration time' claim ('exp') must be in the future")
    if expires > now + MAX_LIFETIME:
        raise ApiError(401, "'Expiration time' claim ('exp') is too far in the future")
    if not isinstance(issued, int | float) or issued > now + CLOCK_SKEW:
        raise ApiError(401, "'Issued at' claim ('iat') must be an Integer of the past")
    return app


def _issuer(state: GitHubState, credential: str) -> App:
    """Return the App that a JWT names; the signature is verified later, with that App's key."""
    try:
        issuer = jwt.decode(credential, options={"verify_signature": False}).get("iss")
    except jwt.InvalidTokenError:
        raise ApiError(401, "A JSON web token could not be decoded") from None
    for app in state.apps.values():
        if app.public_key_pem and str(issuer) in {str(app.app_id), app.client_id}:
            return app
    raise ApiError(401, "'Issuer' claim ('iss') must be an Integer: the App's id")


def _claims(app: App, credential: str) -> dict[str, Any]:
    """Return the verified claims; the caller compares the times with the simulation's clock."""
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
        raise ApiError(401, "A JSON web token could not be decoded") from None
    return claims


def private_key() -> str:
    """Generate a private key as GitHub does: RSA, 2048 bits, PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


def public_key(private_pem: str) -> str:
    """Return the public key of a private key, both in PEM."""
    # Checking that the numbers are prime is slow and not needed for keys generated here.
    key = serialization.load_pem_private_key(
        private_pem.encode(), password=None, unsafe_skip_rsa_key_validation=True
    )
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
