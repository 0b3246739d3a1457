"""The option `sinks`: a table each, `[sinks.NAME]` in ootbot.toml, or JSON in OOTBOT_SINKS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from bot.core import setting_types
from bot.core.json_fields import as_time
from bot.core.settings import option
from bot.sinks.kinds import KINDS, Kind

NAME = re.compile("[a-z][a-z0-9_-]{0,29}")
BATCH_MOST = 100_000
_TABLES = msgspec.json.Decoder(dict[str, dict[str, Any]])


class Common(msgspec.Struct, frozen=True, kw_only=True):
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
    kind: Kind
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


def parse_sinks(text: str) -> tuple[SinkSettings, ...]:
    """Read the tables of all sinks; raises WrongValues with everything that is wrong."""
    try:
        tables = _TABLES.decode(text)
    except msgspec.MsgspecError:
        raise ValueError(
            "write a table for each sink: [sinks.archive], or a JSON object of objects"
        ) from None
    problems: list[str] = []
    found = [_parse_sink(name, table, problems) for name, table in tables.items()]
    if problems:
        raise setting_types.WrongValues(problems)
    return tuple(one for one in found if one)


def _parse_sink(name: str, table: dict[str, Any], problems: list[str]) -> SinkSettings | None:
    """Read one table; adds a sentence for everything that is wrong with it."""
    told = [f"sink {name[:40]!r}: a name has letters, digits, _ and -"] if not NAME.fullmatch(name) else []
    kind = KINDS.get(str(table.get("kind")))
    if kind is None:
        problems += [*told, f"sink {name}: kind is none of {', '.join(KINDS)}"]
        return None
    if not kind.is_installed:
        told.append(f"sink {name} needs {kind.package.replace('_', '-')}: pip install 'ootbot[{kind.extra}]'")
    common = _convert(name, {key: table[key] for key in table if key in COMMON}, Common, told)
    options = _convert(name, {key: table[key] for key in table if key not in COMMON}, kind.options, told)
    if options is not None and (problem := kind.find_problem(options)):
        told.append(f"sink {name}: {problem}")
    read = None if common is None else _read(name, common, told)
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


COMMON = frozenset(Common.__struct_fields__)


def _convert(name: str, given: dict[str, Any], kind: type[Any], told: list[str]) -> Any:
    listed = {key: [value] if key in {"what", "repos"} and isinstance(value, str) else value
              for key, value in given.items()}  # fmt: skip
    try:
        return msgspec.convert(listed, kind)
    except msgspec.ValidationError as error:
        told.append(f"sink {name}: {error}")
        return None


def _read(name: str, common: Common, told: list[str]) -> tuple[int | None, int] | None:
    """Return `since` and `max_lag` as numbers; None where something is wrong."""
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


def show_sinks(sinks: tuple[SinkSettings, ...]) -> str:
    """Return the default as it would be written."""
    return "{}" if not sinks else ", ".join(one.name for one in sinks)


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
