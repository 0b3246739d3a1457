"""Secrets in texts of strangers that GitHub did not mask: replaced before a row is made. It loads RE2: stands alone."""

from __future__ import annotations

import re2

TOKENS = (
    r"gh[pousr]_[A-Za-z0-9]{36,}",
    r"ghs_[A-Za-z0-9_.\-]{36,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36,}",
    r"glpat-[A-Za-z0-9_\-]{20,}",
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",
    r"pypi-[A-Za-z0-9_\-]{50,}",
    r"dckr_[a-z]{2,5}_[A-Za-z0-9_\-]{20,}",
    r"sk-(?:ant-|proj-)[A-Za-z0-9_\-]{20,}",
    r"AIza[A-Za-z0-9_\-]{35}",
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{16,}",  # a JWT: header, claims, signature
    # a secret of AWS is known by its name only
    r"(?i:aws_?secret_?access_?key|aws_?secret_?key|secretaccesskey)[\"']? {0,3}[:=] {0,3}[\"']?[A-Za-z0-9/+]{40}",
)
PRIVATE_KEY = "-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
KEY_END = "-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"


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
