"""Loading of settings: the environment, and a file in TOML or `.env` lines as systemd and containers read them."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.core import presets, setting_types
from bot.core.errors import Misconfigured
from bot.core.settings import Settings, options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "OOTBOT_"
CONFIG_FILE = "ootbot.toml"


def load(
    environ: Mapping[str, str], config: Path | None = None, *, features: Iterable[type] = ()
) -> tuple[Settings, list[str]]:
    """Read every option, ours and those of the features' classes; the environment overrides the file.

    Returns the settings and warnings. Raises Misconfigured with one sentence for every option that is missing or
    wrong; for an unreadable file with that alone, as what it would have set is unknown.
    """
    own = _from_file(config) | _from_environ(environ)
    given = _from_preset(own) | own
    problems: list[str] = []
    unread = _read_key_files(given, problems)
    kinds = tuple(features)
    fields = options(Settings, *kinds)
    warnings = [_unknown(name, source, fields) for name, (source, _) in given.items() if name not in fields]
    values = {}
    for name, field in fields.items():
        if name not in given:
            if field.metadata["required"] and name not in unread:
                problems.append(f"{PREFIX}{name.upper()} is missing: {field.metadata['help']}")
            continue
        source, text = given[name]
        try:
            values[name] = field.metadata["read"](text)
        except ValueError as error:
            problems.append(f"{source} is wrong: {error}")
    if problems:
        raise Misconfigured(problems)
    of_features = {
        kind: kind(**{name: values[name] for name in options(kind) if name in values}) for kind in kinds
    }
    settings = Settings(
        **{name: values[name] for name in options(Settings) if name in values}, of_features=of_features
    )
    if (settings.relay_app_id is None) != (settings.relay_private_key is None):
        raise Misconfigured(
            ["OOTBOT_RELAY_APP_ID and OOTBOT_RELAY_PRIVATE_KEY(_PATH) belong together: set both"]
        )
    return settings, warnings


def secret_files(environ: Mapping[str, str], config: Path | None = None) -> list[Path]:
    """Return the files that hold secrets: the keys, and the settings file where it sets a secret."""
    chosen = config or Path(CONFIG_FILE)
    in_file = _from_file(chosen) if chosen.exists() else {}
    secrets = {name for name, field in options(Settings).items() if not field.repr}
    given = in_file | _from_environ(environ)
    keys = [Path(given[name][1]) for name in ("private_key_path", "relay_private_key_path") if name in given]
    return [*([chosen] if secrets & in_file.keys() else []), *keys]


def read_file(path: Path) -> dict[str, Any]:
    """Return the options a file sets, by their names in lower case; raises OSError and ValueError."""
    text = path.read_text()
    if path.suffix == ".env":
        return _dotenv(text)
    try:
        return {name.lower(): value for name, value in tomllib.loads(text).items()}
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {
        name.removeprefix(PREFIX).lower(): (name, value)
        for name, value in environ.items()
        if name.startswith(PREFIX) and value != ""
    }


def _from_file(path: Path | None) -> dict[str, tuple[str, str]]:
    chosen = path or Path(CONFIG_FILE)
    if not chosen.exists():
        if path is not None:
            raise Misconfigured([f"--config {path}: there is no such file"])
        return {}
    try:
        content = read_file(chosen)
    except (OSError, ValueError) as error:
        raise Misconfigured([f"{chosen} cannot be read: {error}"]) from error
    return {name: (f"{chosen}: {name}", setting_types.as_text(value)) for name, value in content.items()}


def _from_preset(own: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return what the chosen preset sets; an unknown one is refused where its name is read."""
    _, name = own.get("preset", ("", ""))
    return {
        option: (f"preset {name}: {option}", text) for option, text in presets.every().get(name, {}).items()
    }


def _read_key_files(given: dict[str, tuple[str, str]], problems: list[str]) -> set[str]:
    """Turn PRIVATE_KEY_PATH into PRIVATE_KEY, for both Apps; returns the keys whose files are unreadable."""
    unread = set()
    for name in ("private_key", "relay_private_key"):
        source, path = given.pop(f"{name}_path", ("", ""))
        if path and name not in given:
            try:
                given[name] = (source, Path(path).read_text())
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{source} cannot be read: {error}")
                unread.add(name)
    return unread


def _unknown(name: str, source: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {PREFIX}{close[0].upper()}?" if close else ""
    return f"{source} is no option of ootbot{hint}"


def _dotenv(text: str) -> dict[str, str]:
    """Read NAME=VALUE lines; other programs' names are ignored."""
    found = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        name, sign, value = line.partition("=")
        if line.startswith("#") or not line:
            continue
        if not sign:
            raise ValueError(f"line {number} is not NAME=VALUE")
        if name.strip().startswith(PREFIX) and value.strip():
            found[name.strip().removeprefix(PREFIX).lower()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
