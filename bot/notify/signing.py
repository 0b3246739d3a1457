"""The signature of a notice, as Standard Webhooks has it: the receiver's libraries check it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def sign(body: bytes, *, identifier: str, at: int, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers that name a notice and prove whose it is; `at` is in seconds.

    The signature is an HMAC-SHA256 over `id.timestamp.body`, one for each key.
    """
    signed = b".".join((identifier.encode(), str(at).encode(), body))
    digests = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    headers = {"webhook-id": identifier, "webhook-timestamp": str(at)}
    if digests:
        headers["webhook-signature"] = " ".join(
            f"v1,{base64.b64encode(digest).decode()}" for digest in digests
        )
    return headers
