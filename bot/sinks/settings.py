"""The option `sinks`, a table `[sinks.NAME]` each, or JSON in OOTBOT_SINKS; the kinds of sinks and their options."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from bot.core import setting_types
from bot.core.json_fields import as_time
from bot.core.settings import option

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECT_SCHEMES = ("s3", "gs", "az", "file")
CLICKHOUSE_NAME = re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,62}")
CLICKHOUSE_PORTS = {"http": 8123, "https": 8443}
CLICKHOUSE_USER = "default"
DYNAMO_REGION = re.compile("[a-z]{2}(-[a-z]+)+-[0-9]")
DYNAMO_PREFIX = re.compile("[a-zA-Z0-9_.-]{0,100}")
SINK_NAME = re.compile("[a-z][a-z0-9_-]{0,29}")
BATCH_MOST = 100_000
_TABLES = msgspec.json.Decoder(dict[str, dict[str, Any]])


class ObjectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where objects go, and under which keys."""

    url: str
    layout: Literal["raw", "upstream"] = "raw"


class ClickhouseOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server, and which tables."""

    url: str  # https://user@host:8443
    password_env: str = ""  # the variable that holds the password
    database_map: Literal["ootbot", "upstream"] = "ootbot"
    database: str = "ootbot"  # of our own tables
    manage_schema: bool = False  # make tables and columns that are missing
    keep_days: int = 400  # rows of our own tables; 0: for ever


class ClickhouseServer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs."""

    host: str
    port: int
    secure: bool
    username: str
    password: str


class DynamoOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tables are."""

    region: str
    endpoint: str = ""  # of others than Amazon
    table_prefix: str = "torchci-"
    create_tables: bool = False  # those that are missing, billed by request


@dataclass(frozen=True, kw_only=True)
class SinkKind:
    """One kind of sink. Settings are sent to other processes, which find its functions by name."""

    options: type[Any]  # a struct
    layout: Callable[[Any], str]  # by its options: which of an export's shapes it writes
    find_problem: Callable[[Any], str]  # what is wrong with its options, in words; empty: nothing
    shown_as: Callable[[Any], str]  # its address for pages and logs; options hold no credentials
    driver: str  # a `bot.sinks.driver.OpenDriver`
    package: str  # what its driver imports,
    extra: str  # and the extra it comes with

    @property
    def is_installed(self) -> bool:
        """Whether the packages of its driver are there."""
        return importlib.util.find_spec(self.package) is not None


class CommonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all kinds of sinks have."""

    kind: str
    what: tuple[str, ...]
    repos: tuple[str, ...] = ("*",)
    private: bool = False
    since: str = "now"
    max_lag: str = "10m"
    batch_rows: int = 5_000
    batch_seconds: int = 10
    paused: bool = False


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """One sink."""

    name: str
    kind: SinkKind
    options: Any  # of its kind
    what: tuple[str, ...]  # names of exports and of groups
    repos: tuple[str, ...]  # globs over full names
    private: bool  # whether private repositories are exported, too
    since: int | None  # epoch milliseconds: what there was before is filled in from then on; None: not at all
    max_lag: int  # seconds
    batch_rows: int
    batch_seconds: int
    paused: bool

    @property
    def layout(self) -> str:
        """Which of an export's shapes it writes."""
        return self.kind.layout(self.options)

    @property
    def address(self) -> str:
        """Where it writes to, for pages and logs."""
        return self.kind.shown_as(self.options)


COMMON_NAMES = frozenset(CommonOptions.__struct_fields__)


def object_layout(options: ObjectOptions) -> str:
    """Return the layout that exports have shapes for."""
    return options.layout


def object_address(options: ObjectOptions) -> str:
    """Return where the objects go."""
    return options.url


def find_object_problem(options: ObjectOptions) -> str:
    """Return what is wrong with these options, empty if nothing is."""
    try:
        parts = urlsplit(options.url)
        place = parts.path.strip("/") if parts.scheme == "file" else parts.hostname
    except ValueError:
        parts, place = None, ""
    if parts is None or parts.scheme not in OBJECT_SCHEMES or not place:
        return "url is none of s3://bucket/prefix, gs://..., az://... and file:///folder"
    if parts.username or parts.password or parts.query:
        return "url must not hold credentials: the environment has them, under the names of the provider's own tools"
    return ""


def clickhouse_server(options: ClickhouseOptions) -> ClickhouseServer:
    """Return where the server is, with the password that the environment has."""
    parts = urlsplit(options.url)
    return ClickhouseServer(
        host=parts.hostname or "",
        port=parts.port or CLICKHOUSE_PORTS[parts.scheme],
        secure=parts.scheme == "https",
        username=parts.username or CLICKHOUSE_USER,
        password=os.environ.get(options.password_env, "") if options.password_env else "",
    )


def clickhouse_layout(options: ClickhouseOptions) -> str:
    """Return the layout that exports have shapes for."""
    return f"clickhouse.{options.database_map}"


def clickhouse_address(options: ClickhouseOptions) -> str:
    """Return where the rows go."""
    parts = urlsplit(options.url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or CLICKHOUSE_PORTS[parts.scheme]}"


def find_clickhouse_problem(options: ClickhouseOptions) -> str:
    """Return what is wrong with these options, empty if nothing is."""
    try:
        parts = urlsplit(options.url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in CLICKHOUSE_PORTS or not host or parts.path.strip("/"):
        return "url is no address such as https://user@host:8443"
    if parts.password or parts.query:
        return "url must not hold a password: name the variable that holds it, as password_env"
    if not CLICKHOUSE_NAME.fullmatch(options.database):
        return "database is no name of letters, digits and _"
    if not 0 <= options.keep_days <= 36_500:
        return "keep_days is not between 0 and 36500"
    if options.password_env and options.password_env not in os.environ:
        return f"password_env: there is no {options.password_env} in the environment"
    return ""


def dynamo_layout(_options: DynamoOptions) -> str:
    """Return the layout that exports have shapes for."""
    return "dynamodb"


def dynamo_address(options: DynamoOptions) -> str:
    """Return where the items go."""
    return f"{options.endpoint or f'dynamodb.{options.region}'}/{options.table_prefix}*"


def find_dynamo_problem(options: DynamoOptions) -> str:
    """Return what is wrong with these options, empty if nothing is."""
    if not DYNAMO_REGION.fullmatch(options.region):
        return "region is no name such as us-east-1"
    if not DYNAMO_PREFIX.fullmatch(options.table_prefix):
        return "table_prefix has other characters than letters, digits, _, - and ."
    try:
        parts = urlsplit(options.endpoint)
    except ValueError:
        return "endpoint is no address such as http://localhost:8000"
    if options.endpoint and (parts.scheme not in {"http", "https"} or not parts.hostname):
        return "endpoint is no address such as http://localhost:8000"
    if parts.username or parts.password or parts.query:
        return "endpoint must not hold credentials: the environment has them, under the names of Amazon's own tools"
    return ""


SINK_KINDS = {
    "objects": SinkKind(
        options=ObjectOptions,
        layout=object_layout,
        find_problem=find_object_problem,
        shown_as=object_address,
        driver="bot.sinks.objects:open_objects",
        package="obstore",
        extra="s3",
    ),
    "clickhouse": SinkKind(
        options=ClickhouseOptions,
        layout=clickhouse_layout,
        find_problem=find_clickhouse_problem,
        shown_as=clickhouse_address,
        driver="bot.sinks.clickhouse:open_clickhouse",
        package="clickhouse_connect",
        extra="clickhouse",
    ),
    "dynamodb": SinkKind(
        options=DynamoOptions,
        layout=dynamo_layout,
        find_problem=find_dynamo_problem,
        shown_as=dynamo_address,
        driver="bot.sinks.dynamodb:open_dynamodb",
        package="botocore",
        extra="dynamodb",
    ),
}


def parse_sinks(text: str) -> tuple[SinkSettings, ...]:
    """Read the tables of all sinks; raises WrongValues with all problems."""
    try:
        tables = _TABLES.decode(text)
    except msgspec.MsgspecError:
        raise ValueError(
            "write a table for each sink: [sinks.archive], or a JSON object of objects"
        ) from None
    problems: list[str] = []
    sinks = [_parse_sink(name, table, problems) for name, table in tables.items()]
    if problems:
        raise setting_types.WrongValues(problems)
    return tuple(sink for sink in sinks if sink)


def show_sinks(sinks: tuple[SinkSettings, ...]) -> str:
    """Return the value as the settings show it."""
    return "{}" if not sinks else ", ".join(sink.name for sink in sinks)


@dataclass(frozen=True, kw_only=True)
class SinksSettings:
    """Copies for others."""

    sinks: tuple[SinkSettings, ...] = option(
        "Copies for other stores, a TOML table [sinks.NAME] each, or JSON: see docs/sinks.md.",
        parse_sinks,
        default=(),
        secret=True,
        show=show_sinks,
    )


def _parse_sink(name: str, table: dict[str, Any], problems: list[str]) -> SinkSettings | None:
    """Read one table; adds a sentence for each problem."""
    told = (
        [f"sink {name[:40]!r}: a name has letters, digits, _ and -"] if not SINK_NAME.fullmatch(name) else []
    )
    kind = SINK_KINDS.get(str(table.get("kind")))
    if kind is None:
        problems += [*told, f"sink {name}: kind is none of {', '.join(SINK_KINDS)}"]
        return None
    if not kind.is_installed:
        told.append(f"sink {name} needs {kind.package.replace('_', '-')}: pip install 'ootbot[{kind.extra}]'")
    common = _convert_options(
        name, {key: table[key] for key in table if key in COMMON_NAMES}, CommonOptions, told
    )
    options = _convert_options(
        name, {key: table[key] for key in table if key not in COMMON_NAMES}, kind.options, told
    )
    if options is not None and (problem := kind.find_problem(options)):
        told.append(f"sink {name}: {problem}")
    read = None if common is None else _read_common(name, common, told)
    problems += told
    if told or common is None or options is None or read is None:
        return None
    since, max_lag = read
    return SinkSettings(
        name=name,
        kind=kind,
        options=options,
        what=common.what,
        repos=common.repos,
        private=common.private,
        since=since,
        max_lag=max_lag,
        batch_rows=common.batch_rows,
        batch_seconds=common.batch_seconds,
        paused=common.paused,
    )


def _convert_options(name: str, given: dict[str, Any], kind: type[Any], told: list[str]) -> Any:
    listed = {key: [value] if key in {"what", "repos"} and isinstance(value, str) else value
              for key, value in given.items()}  # fmt: skip
    try:
        return msgspec.convert(listed, kind)
    except msgspec.ValidationError as error:
        told.append(f"sink {name}: {error}")
        return None


def _read_common(name: str, common: CommonOptions, told: list[str]) -> tuple[int | None, int] | None:
    """Return `since` and `max_lag` as numbers; None if something is wrong."""
    before = len(told)
    if not common.what or not all(common.what):
        told.append(f"sink {name}: what is empty: name what is to be exported")
    if not common.repos or not all(common.repos):
        told.append(f'sink {name}: repos is empty: leave it out, or write globs such as ["org/*"]')
    if not 0 < common.batch_rows <= BATCH_MOST:
        told.append(f"sink {name}: batch_rows is not between 1 and {BATCH_MOST}")
    if not 0 <= common.batch_seconds <= 3600:
        told.append(f"sink {name}: batch_seconds is not between 0 and 3600")
    since, max_lag = None, 0
    if common.since != "now" and (since := as_time(common.since)) is None:
        told.append(f"sink {name}: since is neither now nor a date such as 2026-01-31")
    try:
        max_lag = setting_types.duration(common.max_lag)
    except ValueError as error:
        told.append(f"sink {name}: max_lag: {error}")
    return (since, max_lag) if len(told) == before else None
