"""Loading of settings: the environment, and a file in TOML or `.env` lines as systemd and containers read them."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.core import files, setting_types
from bot.core.errors import Misconfigured, in_words
from bot.core.settings import Settings, options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "OOTBOT_"
CONFIG_FILE = "ootbot.toml"
KEY_FILES = ("private_key_path", "relay_private_key_path")  # name files to read options of like names from
RELAY = ("relay_app_id", "relay_private_key")


def load(
    environ: Mapping[str, str], config: Path | None = None, *, features: Iterable[type] = ()
) -> tuple[Settings, list[str]]:
    """Read every option, ours and those of the features' classes; the environment overrides the file.

    Returns the settings and warnings. Raises Misconfigured with one sentence for every option that is unknown, missing
    or wrong; beside an unreadable file none is missing, as what it would have set is unknown.
    """
    problems: list[str] = []
    in_file = _from_file(config, problems)
    unreadable = bool(problems)
    own = in_file | _from_environ(environ)
    given = _from_preset(own) | own
    file = (config or Path(CONFIG_FILE)) if in_file else None
    unread = _read_key_files(given, problems)
    kinds = tuple(features)
    fields = options(Settings, *kinds)
    warnings = [_unknown(name, source, fields) for name, (source, _) in given.items() if name not in fields]
    values = {}
    for name, field in fields.items():
        if name not in given:
            if field.metadata["required"] and name not in unread and not unreadable:
                problems.append(f"{_named(name, file)}: {field.metadata['help']}")
            continue
        source, text = given[name]
        try:
            beside = (environ,) if field.metadata["environ"] else ()
            values[name] = field.metadata["read"](text, *beside)
        except setting_types.WrongValues as error:
            problems += [f"{source}: {problem}" for problem in error.problems]
        except ValueError as error:
            problems.append(f"{source} is wrong: {error}")
    pair = [name for name in RELAY if given.get(name)]
    if len(pair) == 1 and not unreadable and not unread & set(RELAY):
        problems.append(_belong_together(given[pair[0]][0]))
    if problems:
        raise Misconfigured([*warnings, *problems])
    of_features = {
        kind: kind(**{name: values[name] for name in options(kind) if name in values}) for kind in kinds
    }
    settings = Settings(
        **{name: values[name] for name in options(Settings) if name in values}, of_features=of_features
    )
    return settings, warnings


def secret_files(
    environ: Mapping[str, str], config: Path | None = None, *, features: Iterable[type] = ()
) -> list[Path]:
    """Return the files that hold secrets: the keys, and the settings file where it sets a secret."""
    chosen = config or Path(CONFIG_FILE)
    in_file = _from_file(chosen, []) if chosen.exists() else {}
    secrets = {name for name, field in options(Settings, *features).items() if not field.repr}
    given = in_file | _from_environ(environ)
    keys = [Path(given[name][1]) for name in KEY_FILES if name in given]
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


def _from_file(path: Path | None, problems: list[str]) -> dict[str, tuple[str, str]]:
    chosen = path or Path(CONFIG_FILE)
    if not chosen.exists():
        if path is not None:
            problems.append(f"--config {path}: there is no such file")
        return {}
    try:
        content = read_file(chosen)
    except OSError as error:
        problems.append(f"{in_words(error)}; it should hold the settings")
        return {}
    except ValueError as error:
        problems.append(f"{chosen} cannot be read: {error}")
        return {}
    return {name: (f"{chosen}: {name}", setting_types.as_text(value)) for name, value in content.items()}


def _from_preset(own: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return what the chosen preset sets; an unknown one is refused where its name is read."""
    _, name = own.get("preset", ("", ""))
    return {
        option: (f"preset {name}: {option}", text)
        for option, text in files.read_presets().get(name, {}).items()
    }


def _read_key_files(given: dict[str, tuple[str, str]], problems: list[str]) -> set[str]:
    """Turn PRIVATE_KEY_PATH into PRIVATE_KEY, for both Apps; returns the keys whose files are unreadable."""
    unread = set()
    for name in ("private_key", "relay_private_key"):
        source, path = given.pop(f"{name}_path", ("", ""))
        if path and name not in given:
            try:
                given[name] = (source, Path(path).read_text())
            except OSError as error:
                problems.append(f"{source} cannot be read: {in_words(error)}")
                unread.add(name)
            except UnicodeDecodeError:
                problems.append(f"{source} cannot be read: {path} is not text; use the .pem file from GitHub")
                unread.add(name)
    return unread


def _unknown(name: str, source: str, known: Mapping[str, object]) -> str:
    """Say that an option is unknown, and which was meant: as a variable or as a key, as it was written."""
    close = difflib.get_close_matches(name, [*known, *KEY_FILES], 1)
    spelled = f"{PREFIX}{close[0].upper()}" if close and source.startswith(PREFIX) else "".join(close)
    return f"{source} is no option of ootbot" + (f"; did you mean {spelled}?" if close else "")


def _named(name: str, file: Path | None) -> str:
    """Say that an option is missing, and how it is spelled where it may be set."""
    keyed = f"{name}_path" in KEY_FILES
    variable = f"{PREFIX}{name.upper()}"
    if file is None or file.suffix == ".env":
        return f"{variable}_PATH (a file) or {variable} is missing" if keyed else f"{variable} is missing"
    key = f"{name}_path (a file) or {name}" if keyed else name
    return f"{key} is missing (in {file}, or as {variable}{'_PATH' if keyed else ''})"


def _belong_together(source: str) -> str:
    names = ("relay_app_id", "relay_private_key_path")
    spelled = [f"{PREFIX}{name.upper()}" for name in names] if source.startswith(PREFIX) else names
    return f"{' and '.join(spelled)} belong together: set both"


def _dotenv(text: str) -> dict[str, str]:
    """Read NAME=VALUE lines; other programs' names are ignored."""
    values = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        name, sign, value = line.partition("=")
        if line.startswith("#") or not line:
            continue
        if not sign:
            raise ValueError(f"line {number} is not NAME=VALUE")
        if name.strip().startswith(PREFIX) and value.strip():
            values[name.strip().removeprefix(PREFIX).lower()] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
