"""Who is the App, to GitHub? Its private key, and JWTs signed for GitHub's time rather than ours."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bot.errors import Misconfigured

if TYPE_CHECKING:
    from bot.clock import Clock

log = structlog.get_logger("bot.identity")

SKEW = 20_000  # milliseconds between two clocks that are worth a word
LIFE = 9 * 60  # seconds a JWT is good for; GitHub takes ten minutes at most
BACKDATED = 60  # seconds, for clocks that differ a little


class Identity:
    """One App's key, and what is known of GitHub's clock."""

    def __init__(self, app_id: int, private_key: str, clock: Clock) -> None:
        self._app_id = app_id
        self._private_key = _load(private_key)  # once: checking a key takes as long as a page
        self._clock = clock
        self._skew = 0.0  # milliseconds that GitHub's clock is ahead of ours, once that has mattered

    def jwt(self) -> str:
        """Return a JWT that says who the App is, valid now by GitHub's clock."""
        now = round(self._clock.now() + self._skew) // 1000
        claims = {"iat": now - BACKDATED, "exp": now + LIFE, "iss": str(self._app_id)}
        return jwt.encode(claims, self._private_key, algorithm="RS256")

    def learn(self, date: str) -> bool:
        """Compare GitHub's clock (an HTTP date) with ours; returns whether they differ otherwise than was known."""
        try:
            theirs = parsedate_to_datetime(date).timestamp() * 1000
        except ValueError:
            return False
        skew = theirs - self._clock.now()
        if abs(skew - self._skew) < SKEW:
            return False
        log.error(
            "this machine's clock is wrong: set it, callers' tokens are judged by it", seconds=-skew / 1000
        )
        self._skew = skew
        return True


def _load(private_key: str) -> RSAPrivateKey:
    """Return the App's key; raises Misconfigured when it is not one."""
    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Misconfigured([f"OOTBOT_PRIVATE_KEY cannot be used: {error}"]) from None
    if not isinstance(key, RSAPrivateKey):
        raise Misconfigured(["OOTBOT_PRIVATE_KEY is not an RSA key: use the .pem file GitHub offered"])
    return key
