"""Does a secret show where none may be? The marks by which every secret of a test can be told."""

from __future__ import annotations

import re

SECRETS = (
    "a webhook secret",
    "an admin token of ours",
    "a relay token of ours",
)  # those of the harness: words no message uses
KINDS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*\S"),
    "an installation token": re.compile(r"ghs_[A-Za-z0-9_.-]{20}"),
    "a signed token (App, callback or OpenID Connect)": re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    "a static key": re.compile(r"ootk_[A-Za-z0-9_-]{10}"),
}


def leaks(text: str) -> list[str]:
    """What secrets a text holds, by kind; never the secrets themselves."""
    found = [f"{secret[2:].strip()}" for secret in SECRETS if secret in text]
    return found + [kind for kind, pattern in KINDS.items() if pattern.search(text)]
