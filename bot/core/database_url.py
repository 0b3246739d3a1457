"""DATABASE_URL of a PostgreSQL, as hosting companies and libpq write it: what it may hold, and what is made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def _check_hosts(hosts: str) -> None:
    for host in hosts.split(","):
        found = re.fullmatch(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::(\d{0,5}))?", host)
        if not found or int(found[1] or 1) not in range(1, 65_536):
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
