"""Links: safe URLs from outside, and the address of GitHub's pages for its API."""

from __future__ import annotations

from urllib.parse import urlsplit

MAX_LENGTH = 2000
_ENTERPRISE = "/api/v3"  # the API of a GitHub Enterprise Server; the others have a host for it


def safe_url(text: str) -> str | None:
    """Return the URL when it is plain http(s) with a host, without credentials or control characters; else None."""
    if len(text) > MAX_LENGTH or not text.isprintable() or any(letter.isspace() for letter in text):
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or "\\" in text:
        return None
    return text


def is_enterprise_server(api_url: str) -> bool:
    """Whether this is the API of a GitHub Enterprise Server."""
    return api_url.endswith(_ENTERPRISE)


def web_url(api_url: str) -> str:
    """Return the address of a GitHub's pages: github.com, GitHub Enterprise Server, or with data residency."""
    if is_enterprise_server(api_url):
        return api_url.removesuffix(_ENTERPRISE)
    parts = urlsplit(api_url)
    return f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"
