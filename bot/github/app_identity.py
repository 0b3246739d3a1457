"""The App's identity at GitHub: its private key, and JWTs whose times follow GitHub's clock rather than ours."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bot.core.errors import Misconfigured

if TYPE_CHECKING:
    from bot.core.clock import Clock

log = structlog.get_logger("bot.github.app_identity")

TOLERANCE = 20_000  # milliseconds two clocks may differ
LIFETIME = 9 * 60  # seconds of a JWT; GitHub allows ten minutes
BACKDATED = 60  # seconds, for small differences between the clocks


class Identity:
    """One App's key, and how far GitHub's clock is from ours."""

    def __init__(self, app_id: int, private_key: str, clock: Clock) -> None:
        self._app_id = app_id
        self._private_key = _load(private_key)  # once: validating a key takes as long as rendering a page
        self._clock = clock
        self._skew = 0.0  # milliseconds that GitHub's clock is ahead of ours, once that exceeds the tolerance

    def jwt(self) -> str:
        """Return a JWT of the App, valid now by GitHub's clock."""
        now = round(self._clock.now() + self._skew) // 1000
        claims = {"iat": now - BACKDATED, "exp": now + LIFETIME, "iss": str(self._app_id)}
        return jwt.encode(claims, self._private_key, algorithm="RS256")

    def correct_clock(self, date: str) -> bool:
        """Compare GitHub's clock (an HTTP date) with ours; returns whether the correction has changed."""
        try:
            theirs = parsedate_to_datetime(date).timestamp() * 1000
        except ValueError:
            return False
        skew = theirs - self._clock.now()
        if abs(skew - self._skew) < TOLERANCE:
            return False
        log.error(
            "this machine's clock is wrong: set it, callers' tokens are judged by it", seconds=-skew / 1000
        )
        self._skew = skew
        return True


def _load(private_key: str) -> RSAPrivateKey:
    """Return the App's key; raises Misconfigured where it is none."""
    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Misconfigured([f"OOTBOT_PRIVATE_KEY cannot be used: {error}"]) from None
    if not isinstance(key, RSAPrivateKey):
        raise Misconfigured(["OOTBOT_PRIVATE_KEY is not an RSA key: use the .pem file GitHub offered"])
    return key
