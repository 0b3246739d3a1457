"""Secrets in texts of strangers that GitHub did not mask, because it does not know them: replaced before a row is made.

Logs, which come in blocks and may hold a key across two of them, have `bot.ci.logs.parse.masking`.
"""

from __future__ import annotations

import re2

from bot.core.secret_patterns import KEY_END, PRIVATE_KEY, TOKENS

MASK = "***"
ESCAPE = "\x1b"
_SEQUENCE = re2.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x{9b}[0-?]*[ -/]*[@-~]"
)
_SECRET = re2.compile("|".join((*TOKENS, rf"(?s:{PRIVATE_KEY}.*?(?:{KEY_END}|\z))")))
# what every secret has: most texts have none of these, and are not searched any further
_SIGNS = ("_", "-", "AKIA", "ASIA", "AIza", "eyJ", "ecret")


def mask(text: str) -> str:
    """Return a text without the secrets in it; without colours, too, where one of them stood inside a secret."""
    if not any(sign in text for sign in _SIGNS):
        return text
    whole = text.encode("utf-8", "replace").decode()
    if ESCAPE in whole or "\x9b" in whole:
        plain = _SEQUENCE.sub("", whole)
        return _masked(plain) if _SECRET.search(plain) else text
    return _masked(whole) if _SECRET.search(whole) else text


def _masked(text: str) -> str:
    masked: str = _SECRET.sub(MASK, text)
    return masked
