"""May this address from outside be shown as a link?"""

from __future__ import annotations

from urllib.parse import urlsplit

MOST_LENGTH = 2000


def safe_url(text: str) -> str | None:
    """Return the URL when it is plain http(s) with a host, without credentials or control characters; else None."""
    if len(text) > MOST_LENGTH or not text.isprintable() or any(letter.isspace() for letter in text):
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or "\\" in text:
        return None
    return text
