"""Callback tokens: each is made for one dispatch, sent with it and handed back with its reports."""

from __future__ import annotations

import functools
import hmac
from typing import TYPE_CHECKING, Any

import jwt

if TYPE_CHECKING:
    from collections.abc import Mapping

LIFE = 35 * 24 * 3600  # seconds: as long as GitHub lets a workflow run live
ALGORITHM = "HS256"
RECENT = 1_000  # tokens that are remembered: every job of a run sends the same one


def make(dispatch: Mapping[str, Any], key: bytes) -> str:
    """Return the dispatch's token; the same dispatch always has the same one."""
    issued = dispatch["created_at"] // 1000
    return _signed(key, iat=issued, exp=issued + LIFE, **_bound(dispatch))


@functools.lru_cache(RECENT)
def _signed(key: bytes, **claims: Any) -> str:
    return jwt.encode(claims, key, algorithm=ALGORITHM)


def belongs(token: str | None, dispatch: Mapping[str, Any], key: bytes, *, now: int) -> bool:
    """Return whether the token was made for this very dispatch and has not expired; `now` in epoch milliseconds."""
    if not token:
        return False
    if hmac.compare_digest(token.encode("utf-8", "replace"), make(dispatch, key).encode()):
        return bool(dispatch["created_at"] // 1000 + LIFE > now / 1000)
    try:  # one that an earlier version wrote differently
        claims = jwt.decode(
            token, key, algorithms=[ALGORITHM], options={"verify_exp": False, "verify_iat": False}
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        return False
    same = all(claims.get(name) == value for name, value in _bound(dispatch).items())
    return same and isinstance(claims.get("exp"), int) and claims["exp"] > now / 1000


def _bound(dispatch: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "jti": dispatch["token_jti"],
        "delivery": dispatch["delivery_id"],
        "backend": dispatch["backend_key"],
        "pr": dispatch["pr_number"],
        "head": dispatch["head_sha"],
    }
