"""What do secrets look like that GitHub did not mask? Patterns of RE2, for logs and command lines."""

from __future__ import annotations

TOKENS = (
    r"gh[pousr]_[A-Za-z0-9]{36,}",
    r"ghs_[A-Za-z0-9_.\-]{36,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"AKIA[0-9A-Z]{16}",
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{16,}",  # a JWT: header, claims, signature
)
PRIVATE_KEY = "-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"
