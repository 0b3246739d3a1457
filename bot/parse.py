"""How is an option's text read? One function a type; each raises ValueError with what to write instead."""

from __future__ import annotations

import base64
import binascii
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bot.domain.duration import parse_duration as duration

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["duration"]

REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class IssuerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One OpenID Connect issuer whose tokens are believed."""

    issuer: str
    jwks_url: str = ""  # default: <issuer>/.well-known/jwks
    repository_claim: str = ""  # the claim that is the repository's full name
    repositories: dict[str, str] = {}  # or: the token's `sub` or other id -> repository
    repositories_claim: str = "sub"
    required_claims: dict[str, str] = {}

    @property
    def keys_url(self) -> str:
        """Where the issuer's public keys are."""
        return self.jwks_url or f"{self.issuer.rstrip('/')}/.well-known/jwks"


GITHUB_ACTIONS = IssuerConfig(
    issuer="https://token.actions.githubusercontent.com", repository_claim="repository"
)


def as_text(value: Any) -> str:
    """Return a TOML value as the environment would hold it."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def words(text: str) -> tuple[str, ...]:
    """Read a comma separated list with at least one word."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise ValueError("write at least one word, several separated by commas")
    return found


def word(text: str) -> str:
    """Read one short word."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,30}", text):
        raise ValueError("write one word of letters, digits, dots, dashes or underscores, at most 30")
    return text


def positive(text: str) -> int:
    """Read a whole number over zero."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**63:
        raise ValueError(f"{text!r} is not a whole number over 0")
    return int(text)


def port(text: str) -> int:
    """Read a TCP port."""
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= 65535:
        raise ValueError(f"{text!r} is not a port: write 0 (any free one) to 65535")
    return int(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def repositories(text: str) -> tuple[str, ...]:
    """Read a comma separated list of owner/name."""
    found = words(text)
    for name in found:
        if not REPOSITORY.fullmatch(name):
            raise ValueError(f"{name!r} is not a repository: write owner/name")
    return found


def https_url(text: str) -> str:
    """Read an absolute URL; plain http only to loopback."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"{text!r} is not a URL: write https://host/path")
    if parts.username or parts.password:
        raise ValueError("a URL with a name or password in it is not accepted here")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise ValueError(f"plain http is accepted only to loopback: write https://{host}")
    return text.rstrip("/")


def database_url(text: str) -> str:
    """Read a PostgreSQL or SQLite URL."""
    if not text.startswith(("postgresql://", "postgres://", "sqlite:///")):
        raise ValueError("write postgresql://user:password@host/database, or leave it unset for SQLite")
    return text


def pem(text: str) -> str:
    """Read a private key: PEM, PEM with literal backslash-n, or base64 of PEM."""
    candidate = text.strip().replace("\\n", "\n")
    if "-----BEGIN" not in candidate:
        try:
            candidate = base64.b64decode(candidate, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            candidate = ""
    if "-----BEGIN" not in candidate or "PRIVATE KEY-----" not in candidate:
        raise ValueError("this is no private key: give the .pem file GitHub offered, or base64 of it")
    return candidate.strip() + "\n"


def issuers(text: str) -> tuple[IssuerConfig, ...]:
    """Read a JSON list of issuers, or names of config/issuers.toml."""
    if not text.lstrip().startswith("["):
        return tuple(_known_issuer(name) for name in words(text))
    try:
        found = msgspec.json.decode(text, type=tuple[IssuerConfig, ...])
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a list of issuers: {error}") from None
    for issuer in found:
        _check_issuer(issuer)
    if not found:
        raise ValueError("the list of issuers is empty: nobody could report")
    return found


def config_text(name: str) -> str:
    """Return a file of config/: shipped in the wheel as bot/_config, beside bot/ in a checkout."""
    shipped = resources.files("bot") / "_config" / name
    if shipped.is_file():
        return shipped.read_text()
    return (Path(__file__).parent.parent / "config" / name).read_text()


def _known_issuer(name: str) -> IssuerConfig:
    known = tomllib.loads(config_text("issuers.toml"))
    if name not in known:
        raise ValueError(f"there is no issuer {name!r}; known are {', '.join(known)}, or write a JSON list")
    issuer = msgspec.convert(known[name], IssuerConfig)
    _check_issuer(issuer)
    return issuer


def _check_issuer(issuer: IssuerConfig) -> None:
    for url in (issuer.issuer, issuer.keys_url):
        https_url(url)
    if bool(issuer.repository_claim) == bool(issuer.repositories):
        raise ValueError(f"{issuer.issuer}: give either repository_claim or repositories")
    for name in issuer.repositories.values():
        repositories(name)
