"""Errors of other stores, without what would open them: they quote URLs, and these hold credentials."""

from __future__ import annotations

import re

from bot.core.masking import MASK, mask

_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_SIGNED = re.compile(
    r"(?i)\b(x-amz-[a-z-]*(?:signature|credential|token)|awsaccesskeyid|signature|sig|se|sp|sv|token|password|secret)="
    r"[^&\s\"'<>]+"
)


def mask_credentials(text: str) -> str:
    """Return the first line of an error without logins, signatures and secrets."""
    line = " ".join(text.partition("\n\n")[0].split())
    return mask(_SIGNED.sub(rf"\1={MASK}", _LOGIN.sub(f"{MASK}@", line)))
