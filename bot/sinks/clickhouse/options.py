"""The options of sinks of kind `clickhouse`."""

from __future__ import annotations

import os
import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec

NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,62}")
PORTS = {"http": 8123, "https": 8443}
DEFAULT_USER = "default"


class ClickhouseOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server, and which tables."""

    url: str  # https://user@host:8443
    password_env: str = ""  # the variable that holds the password
    database_map: Literal["ootbot", "upstream"] = "ootbot"
    database: str = "ootbot"  # of our own tables
    manage_schema: bool = False  # make tables and columns that are missing
    keep_days: int = 400  # rows of our own tables; 0: for ever


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs."""

    host: str
    port: int
    secure: bool
    username: str
    password: str


def server_of(options: ClickhouseOptions) -> Server:
    """Return where the server is, with the password that the environment has."""
    parts = urlsplit(options.url)
    return Server(
        host=parts.hostname or "",
        port=parts.port or PORTS[parts.scheme],
        secure=parts.scheme == "https",
        username=parts.username or DEFAULT_USER,
        password=os.environ.get(options.password_env, "") if options.password_env else "",
    )


def clickhouse_layout(options: ClickhouseOptions) -> str:
    """Return the layout that exports have shapes for."""
    return f"clickhouse.{options.database_map}"


def clickhouse_address(options: ClickhouseOptions) -> str:
    """Return where the rows go."""
    parts = urlsplit(options.url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or PORTS[parts.scheme]}"


def find_problem(options: ClickhouseOptions) -> str:
    """Return what is wrong with these options, empty where nothing is."""
    try:
        parts = urlsplit(options.url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in PORTS or not host or parts.path.strip("/"):
        return "url is no address such as https://user@host:8443"
    if parts.password or parts.query:
        return "url must not hold a password: name the variable that holds it, as password_env"
    if not NAME.fullmatch(options.database):
        return "database is no name of letters, digits and _"
    if not 0 <= options.keep_days <= 36_500:
        return "keep_days is not between 0 and 36500"
    if options.password_env and options.password_env not in os.environ:
        return f"password_env: there is no {options.password_env} in the environment"
    return ""
