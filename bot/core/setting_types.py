"""The types of options: one function each that reads its text, or raises ValueError with what to write instead.

DATABASE_URL of a PostgreSQL is read as hosting companies and libpq write it.
"""

from __future__ import annotations

import base64
import binascii
import re
import tomllib
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from bot.core import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

WRITTEN = "write postgresql://user:password@host/database, or leave it unset for SQLite"
SCHEMES = ("postgresql://", "postgres://")
# what the driver itself reads of an address, as libpq does
READ_BY_DRIVER = frozenset({
    "host", "port", "user", "password", "dbname", "passfile", "service", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
    "target_session_attrs", "krbsrvname", "gsslib",
})  # fmt: skip
SENT_TO_SERVER = frozenset({"application_name", "options", "search_path"})
# whether a pooler keeps prepared statements is found out at the start
ABOUT_POOLERS = frozenset({"pgbouncer", "statement_cache_size", "prepared_statement_cache_size"})
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "sslmode": SSL_MODES,
    "target_session_attrs": ("any", "primary", "read-write"),  # a bot writes
    "channel_binding": ("disable", "prefer"),
    "gssencmode": ("disable", "prefer"),
}
WHY: Mapping[str, str] = {
    "target_session_attrs": "the bot has to write",
    "channel_binding": "the driver has none, so leave it out; sslmode=verify-full protects the connection, too",
    "gssencmode": "the driver encrypts by TLS only: use sslmode",
}
Required = str | tuple[str, ...]  # the value a claim must have, or those it may have
Network = IPv4Network | IPv6Network
REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}")
MIN_SECRET = 16  # characters
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
DURATION = "[1-9][0-9]{0,8}[smhd]"
MAX_DURATION = 3650 * 86_400  # ten years: anything longer is a mistake, and milliseconds still fit 64 bits
SIZE = re.compile(r"([1-9][0-9]{0,11})(?: ?(B|KiB|MiB|GiB|TiB))?")
_SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class WrongValues(ValueError):
    """An option that consists of several is wrong in these ways, a sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Assigned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The repository of a provider's id whose tokens must carry further claims."""

    repository: str
    required_claims: dict[str, Required] = {}


class IssuerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trusted OpenID Connect issuer, and the names of its claims."""

    issuer: str
    jwks_url: str = "{issuer}/.well-known/jwks"
    repository_claim: str = ""  # the claim that is the repository's full name
    repositories: dict[str, str | Assigned] = {}  # or: the provider's own id -> repository
    repositories_claims: tuple[str, ...] = ("sub",)  # the claims that form that id, joined with a slash
    required_claims: dict[str, Required] = {}
    audiences: tuple[str, ...] = ()  # empty: those of OIDC_AUDIENCE
    longest_life: Annotated[int, msgspec.Meta(ge=60, le=86_400)] = 900  # seconds between iat and exp
    repository_id_claim: str = "repository_id"
    run_id_claim: str = "run_id"
    run_attempt_claim: str = "run_attempt"
    check_run_id_claim: str = "check_run_id"

    @property
    def keys_url(self) -> str:
        """The URL of the issuer's public keys."""
        return self.jwks_url.replace("{issuer}", self.issuer.rstrip("/"))


GITHUB_ACTIONS = IssuerConfig(
    issuer="https://token.actions.githubusercontent.com", repository_claim="repository"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresAddress:
    """Where a PostgreSQL is, and how it is connected to."""

    user: str
    password: str | None
    hosts: str  # with ports, commas between; empty: a socket, or what `query` names
    database: str
    query: Mapping[str, str]  # of those names that the driver and libpq know
    connect_timeout: float | None  # seconds

    @property
    def url(self) -> str:
        """The address as the driver reads it, password included."""
        return self._written(self.password)

    @property
    def without_password(self) -> str:
        """The address as command lines may show it."""
        return self._written(None)

    def _written(self, password: str | None) -> str:
        secret = "" if password is None else f":{quote(password, safe='')}"
        login = f"{quote(self.user, safe='')}{secret}@" if self.user or secret else ""
        query = f"?{urlencode(self.query, quote_via=quote)}" if self.query else ""
        return f"postgresql://{login}{self.hosts}/{quote(self.database, safe='')}{query}"


def read_address(text: str) -> PostgresAddress:
    """Read the URL of a PostgreSQL; raises ValueError with one sentence, which does not hold the password."""
    if not text.startswith(SCHEMES):
        raise ValueError(WRITTEN)
    if re.search(r"[\s\x00-\x1f]", text):
        raise ValueError("there is a space or a line break in it: write it as %20, and the URL on one line")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError(WRITTEN) from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if "@" in login + parts.path + parts.query or parts.fragment:
        raise ValueError("name or password hold @, /, ? or #: write them as %40, %2F, %3F and %23")
    _check_hosts(hosts)
    query, timeout = _read_query(parts.query)
    return PostgresAddress(
        user=unquote(user),
        password=unquote(password) if colon else None,
        hosts=hosts,
        database=unquote(parts.path.removeprefix("/")),
        query=query,
        connect_timeout=timeout,
    )


def as_text(value: Any) -> str:
    """Return a TOML value as it would stand in the environment."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def words(text: str) -> tuple[str, ...]:
    """Read a comma separated list with at least one word."""
    listed = tuple(word.strip() for word in text.split(",") if word.strip())
    if not listed:
        raise ValueError("write at least one word, several separated by commas")
    return listed


def networks(text: str) -> tuple[Network, ...]:
    """Read a comma separated list of networks or addresses."""
    return tuple(ip_network(word) for word in words(text))


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


def count(text: str) -> int:
    """Read a whole number, zero included."""
    if not text.isascii() or not text.isdigit() or int(text) >= 2**31:
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def share(text: str) -> float:
    """Read a share: 0.9 or 90%."""
    words = text.strip()
    try:
        value = float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a share: write 0.9, or 90%")
    return value


def duration(text: str) -> int:
    """Read a duration in seconds: one whole number above zero and one unit, nothing between or around them.

    Zero is refused because it would mean "at once" to one reader and "never" to the next.
    """
    if re.fullmatch(DURATION, text) is None:
        shown = text[:40].encode("unicode_escape").decode()
        raise ValueError(
            f"`{shown}` is not a duration: write a whole number above zero and its unit, "
            "such as `90s`, `30m`, `6h` or `2d`"
        )
    seconds = int(text[:-1]) * _UNITS[text[-1]]
    if seconds > MAX_DURATION:
        raise ValueError(f"`{text}` is longer than `3650d`: write a shorter duration")
    return seconds


def size(text: str) -> int:
    """Read a number of bytes: 512MiB, 20 GiB, or a plain whole number."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a size: write a whole number and B, KiB, MiB, GiB or TiB")
    return int(match[1]) * _SIZES[match[2] or "B"]


def size_in_words(value: int) -> str:
    """Return a size as it would be written in the settings."""
    return next(f"{value // unit}{name}" for name, unit in reversed(_SIZES.items()) if value % unit == 0)


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


def some_of(choices: tuple[str, ...], *, needed: tuple[str, ...] = ()) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of a comma separated list of some of these words, `needed` among them; order does not matter."""

    def read(text: str) -> tuple[str, ...]:
        listed = words(text)
        for name in listed:
            if name not in choices:
                raise ValueError(f"{name[:40]!r} is not one of {', '.join(choices)}")
        if missing := [name for name in needed if name not in listed]:
            raise ValueError(f"{missing[0]} must be one of them")
        return tuple(name for name in choices if name in listed)

    return read


def numbered_refs(text: str) -> tuple[str, ...]:
    """Read a comma separated list of full refs, each with one {number} as a part of its own."""
    refs = words(text)
    for ref in refs:
        if not ref.startswith("refs/") or ref.split("/").count("{number}") != 1 or ref.count("{") != 1:
            raise ValueError(f"{ref[:40]!r} is no such ref: write one as refs/tags/ciflow/trunk/{{number}}")
    return refs


def repositories(text: str) -> tuple[str, ...]:
    """Read a comma separated list of owner/name."""
    names = words(text)
    for name in names:
        if not REPOSITORY.fullmatch(name):
            raise ValueError(f"{name!r} is not a repository: write owner/name")
    return names


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
        raise ValueError("a URL with a name or password is not accepted here")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise ValueError(f"plain http is accepted only to loopback: write https://{host}")
    return text.rstrip("/")


def public_url(text: str) -> str:
    """Read the URL of the bot itself, whose pages and addresses begin at the root of their host."""
    url = https_url(text)
    parts = urlsplit(url)
    if parts.path or parts.query or parts.fragment:
        host = f"{parts.scheme}://{parts.netloc}"
        raise ValueError(f"{text!r} has more than a host: the bot needs a host name of its own, as in {host}")
    return url


def secret(text: str) -> str:
    """Read a secret that callers present: long enough not to be guessed."""
    if len(text) < MIN_SECRET:
        raise ValueError(
            f"too short: write at least {MIN_SECRET} characters, for instance from `openssl rand -hex 32`"
        )
    return text


def secrets(text: str) -> tuple[str, ...]:
    """Read a comma separated list of such secrets."""
    return tuple(map(secret, words(text)))


def proxy_url(text: str) -> str:
    """Read the URL of an HTTP proxy; it appears in errors and logs, so without name and password."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}") from None
    if "@" in parts.netloc:
        raise ValueError("a proxy that requires a name and password cannot be used: write http://host:port")
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/"):
        raise ValueError(f"{text!r} is not a proxy: write http://host:port")
    return text


def database_url(text: str) -> str:
    """Read a PostgreSQL or SQLite URL."""
    url = text.strip()
    if not url.startswith("sqlite:///"):
        read_address(url)
    return url


def pem(text: str) -> str:
    """Read a private key: PEM, PEM with literal backslash-n, or base64 of PEM."""
    candidate = text.strip().replace("\\n", "\n")
    if "-----BEGIN" not in candidate:
        try:
            candidate = base64.b64decode(candidate, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            candidate = ""
    if "-----BEGIN" not in candidate or "PRIVATE KEY-----" not in candidate:
        raise ValueError("this is not a private key: use the .pem file from GitHub, or base64 of it")
    return candidate.strip() + "\n"


def issuers(text: str) -> tuple[IssuerConfig, ...]:
    """Read names of config/issuers.toml, or a JSON list of names and tables."""
    if text.lstrip().startswith("["):
        try:
            given = msgspec.json.decode(text, type=list[str | dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a list of issuers: {error}") from None
    else:
        given = list(words(text))
    if not given:
        raise ValueError("the list of issuers is empty: nobody could report")
    trusted = tuple(_issuer(item) for item in given)
    names = [issuer.issuer for issuer in trusted]
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"{', '.join(sorted(duplicates))} is listed twice: put its repositories into one table"
        )
    return trusted


def _check_hosts(hosts: str) -> None:
    for host in hosts.split(","):
        match = re.fullmatch(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::(\d{0,5}))?", host)
        if not match or int(match[1] or 1) not in range(1, 65_536):
            raise ValueError(
                f"{host!r} is no host with a port: write host:5432, or [::1]:5432; commas between several"
            )


def _read_query(text: str) -> tuple[dict[str, str], float | None]:
    try:
        given = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text)))
    except ValueError:
        raise ValueError("what follows its ? must be name=value, with & between") from None
    if "ssl" in given:  # as SQLAlchemy calls it
        value = given.pop("ssl")
        given.setdefault("sslmode", "require" if value.lower() in {"true", "1"} else value)
    for name, choices in CHOICES.items():
        if name in given and given[name] not in choices:
            why = f": {WHY[name]}" if name in WHY else ""
            raise ValueError(f"{name} may be {', '.join(choices)}, not {given[name][:50]!r}{why}")
    timeout = _timeout(given.pop("connect_timeout", ""))
    left_out = {*ABOUT_POOLERS, "channel_binding", "gssencmode"}
    query = {name: value for name, value in given.items() if name not in left_out}
    if unknown := sorted(query.keys() - READ_BY_DRIVER - SENT_TO_SERVER):
        raise ValueError(f"{', '.join(unknown)[:100]} cannot be set there: leave it out")
    return query, timeout


def _timeout(text: str) -> float | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise ValueError("connect_timeout is a whole number of seconds")
    return float(text) or None


def _issuer(item: str | dict[str, Any]) -> IssuerConfig:
    """Read one item of the list: a template's name, or a table that may extend one."""
    table = {"template": item} if isinstance(item, str) else dict(item)
    name = table.pop("template", None)
    label = str(name or table.get("issuer") or "an issuer without a name")
    try:
        issuer = msgspec.convert((_template(name) if name is not None else {}) | table, IssuerConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"{label}: {error}") from None
    if problem := _problem_of(issuer):
        raise ValueError(f"{label}: {problem}")
    return issuer


def _template(name: Any) -> dict[str, Any]:
    known = tomllib.loads(files.config_file("issuers.toml").read_text())
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"there is no issuer {name!r}; known are {', '.join(known)}, or write a JSON list")
    template: dict[str, Any] = known[name]
    return template


def _problem_of(issuer: IssuerConfig) -> str:
    """Return what makes this table less restrictive than it seems, or accept no token; empty where all is well."""
    if "{" in issuer.issuer:
        return f'fill in "issuer": {issuer.issuer}'
    for url in (issuer.issuer, issuer.keys_url):
        https_url(url)
    if bool(issuer.repository_claim) == bool(issuer.repositories):
        id_claims = " and ".join(issuer.repositories_claims)
        return f"give either repository_claim, or repositories, a table from {id_claims} to owner/name"
    if issuer.repositories and not (issuer.repositories_claims and all(issuer.repositories_claims)):
        return "repositories_claims must name the claims that form the ids of repositories"
    for identity, repository in issuer.repositories.items():
        if not all(identity.split("/")) or identity.count("/") < len(issuer.repositories_claims) - 1:
            return f"{identity!r} in repositories is not {'/'.join(issuer.repositories_claims)}"
        repositories(repository.repository if isinstance(repository, Assigned) else repository)
    if not all(claim and value and all(value) for claim, value in _required_claims(issuer)):
        return "required_claims needs a name and a text, or a list of texts, for each claim"
    return "" if all(issuer.audiences) else "audiences must not hold an empty text"


def _required_claims(issuer: IssuerConfig) -> Iterator[tuple[str, Required]]:
    """Yield every required claim with the value it must have."""
    yield from issuer.required_claims.items()
    for assigned in issuer.repositories.values():
        if isinstance(assigned, Assigned):
            yield from assigned.required_claims.items()
