"""What can an operator set, and what does each option mean?

Every option is a field below: its name (OOTBOT_<NAME>, or a key of ootbot.toml), its default and one sentence.
`load` reads all of them and reports everything that is wrong at once. Variables that are OpenTelemetry's own
are left to `bot.traces`.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot import parse, settings_file
from bot.errors import Misconfigured
from bot.settings_file import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONFIG_FILE = "ootbot.toml"


def option(
    help_text: str, read: Callable[[str], Any] = str, *, default: Any = ..., secret: bool = False
) -> Any:
    """Declare one option; without a default it is required."""
    metadata = {"help": help_text, "read": read, "required": default is ...}
    value = None if default is ... else default
    return dataclasses.field(default=value, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every option, read and checked."""

    app_id: int = option("The GitHub App's id.", parse.positive)
    webhook_secret: tuple[str, ...] = option(
        "The App's webhook secret; two, comma separated, while it is rotated.",
        parse.secrets,
        secret=True,
    )
    private_key: str = option("The App's private key: PEM, or base64 of it.", parse.pem, secret=True)
    relay_app_id: int | None = option(
        "A second App for the backends, so that upstream grants no contents or actions write.",
        parse.positive,
        default=None,
    )
    relay_private_key: str | None = option(
        "The second App's private key.", parse.pem, default=None, secret=True
    )
    relay_webhook_secret: tuple[str, ...] = option(
        "The second App's webhook secret.", parse.secrets, default=(), secret=True
    )
    github_api_url: str = option(
        "GitHub's REST API; GitHub Enterprise Server: its /api/v3.",
        parse.https_url,
        default="https://api.github.com",
    )
    proxy: str | None = option(
        "An HTTP proxy for all calls out, http://host:port; the environment's is not asked.",
        parse.proxy_url,
        default=None,
    )
    upstream_repo: tuple[str, ...] = option(
        "The watched repository, owner/name; several, comma separated.", parse.repositories
    )
    allowlist: str = option("Who may take part: a file path, or owner/repo:path@ref read through the App.")
    data_dir: Path = option(  # noqa: RUF009 - a field, as the others
        "Where the SQLite file lives.", Path, default=Path("data")
    )
    database_url: str | None = option(
        "postgresql://user:password@host/db; unset: SQLite in DATA_DIR.",
        parse.database_url,
        default=None,
        secret=True,
    )
    public_url: str | None = option(
        "Where people and backends reach the bot; unset: http://HOST:PORT.",
        parse.https_url,
        default=None,
    )
    role: str = option(
        "What this process does: web (doors and pages), worker (the work), or all; only all works on SQLite.",
        parse.one_of("web", "worker", "all"),
        default="all",
    )
    host: str = option("The address to listen on.", default="127.0.0.1")
    port: int = option("The port to listen on.", parse.port, default=8080)
    oidc_audience: tuple[str, ...] = option(
        "Audiences a backend's token may be for, comma separated.", parse.words, default=("ootbot",)
    )
    oidc_issuers: tuple[parse.IssuerConfig, ...] = option(
        "Who may vouch for a backend: a JSON list of issuers, or names out of config/issuers.toml.",
        parse.issuers,
        default=(parse.GITHUB_ACTIONS,),
    )
    relay_token: str | None = option(
        "The shared token of an outside relay; unset: that door is closed.",
        parse.secret,
        default=None,
        secret=True,
    )
    admin_token: str | None = option(
        "Opens /api/admin and records of private repositories; unset: closed.",
        parse.secret,
        default=None,
        secret=True,
    )
    check_prefix: str = option("The first word of our check runs' names.", parse.word, default="oot")
    label_prefixes: tuple[str, ...] = option(
        "What stands before a device's name in a label.",
        parse.words,
        default=("ciflow/oot/", "ciflow/crcr/"),
    )
    rate_limit_per_min: int = option(
        "Reports a minute accepted from one backend.", parse.positive, default=600
    )
    refused_per_min: int = option(
        "Calls a minute from one address that are refused with their reason; further ones get 429.",
        parse.positive,
        default=60,
    )
    trusted_proxies: tuple[parse.Network, ...] = option(
        "Proxies before the bot, networks or addresses: their X-Forwarded-For says who calls.",
        parse.networks,
        default=(),
    )
    job_timeout: int = option(
        "How long a job may stay silent before it counts as timed out.",
        parse.duration,
        default=6 * 3600,
    )
    start_timeout: int = option(
        "How long a dispatch may stay unanswered before it counts as never started.",
        parse.duration,
        default=24 * 3600,
    )
    raw_retention_days: int = option("Days a raw delivery is kept.", parse.positive, default=90)
    record_retention_days: int = option("Days a record is kept.", parse.positive, default=400)
    receive: str = option(
        "How deliveries come in: webhook, or pull (out of GitHub's delivery log; needs no public URL).",
        parse.one_of("webhook", "pull"),
        default="webhook",
    )
    pull_interval: int = option("Time between two looks at that log.", parse.duration, default=5)
    comment: str = option(
        "When the pull request comment is made: failures (at the first one), always, off.",
        parse.one_of("failures", "always", "off"),
        default="failures",
    )
    unlisted: str = option(
        "Reports of unlisted backends: refuse (403), or ignore (200).",
        parse.one_of("refuse", "ignore"),
        default="refuse",
    )
    publish_interval: int = option(
        "Least time between two updates of one check run or comment, verdicts excepted.",
        parse.duration,
        default=10,
    )
    writes_per_min: int = option(
        "Writes a minute to GitHub per installation, dispatches apart.", parse.positive, default=60
    )
    page_cache: int = option(
        "Seconds a page is kept and shown again as it is; 0: made afresh for everybody.",
        parse.count,
        default=5,
    )
    readiness_pass_rate: float = option(
        "A backend is ready for more above this pass rate; see docs/statistics.md for all of these.",
        parse.share,
        default=0.9,
    )
    readiness_timeout_rate: float = option("And below this share of timeouts.", parse.share, default=0.01)
    readiness_long_rate: float = option("And below this share of long runs.", parse.share, default=0.01)
    readiness_long: int = option("What a long run is.", parse.duration, default=3 * 3600)
    readiness_queue: int = option("And up to this median queue time.", parse.duration, default=3600)
    readiness_tenure: int = option("And after so long at its level.", parse.duration, default=30 * 86_400)
    readiness_data_days: int = option("And with results on so many of 30 days.", parse.positive, default=14)
    demotion_days: int = option("Days that demotion looks at.", parse.positive, default=7)
    demotion_pass_rate: float = option(
        "A backend is due for less at this pass rate or below.", parse.share, default=0.9
    )
    demotion_timeout_rate: float = option("Or from this share of timeouts on.", parse.share, default=0.01)
    demotion_long: int = option(
        "Or when the median from dispatch to the last report is longer.", parse.duration, default=3 * 3600
    )
    log_format: str = option(
        "console, or json for machines.", parse.one_of("console", "json"), default="console"
    )
    log_level: str = option(
        "debug, info, warning or error.",
        parse.one_of("debug", "info", "warning", "error"),
        default="info",
    )

    @property
    def url(self) -> str:
        """Where people and backends reach the bot, without a slash at the end."""
        return (self.public_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def pulls(self) -> bool:
        """Whether deliveries are taken out of GitHub's log instead of being sent to us."""
        return self.receive == "pull"

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'ootbot.db'}"

    def is_upstream(self, repo: str) -> bool:
        """Whether this is one of the watched repositories, whatever its letters' case."""
        return repo.casefold() in {name.casefold() for name in self.upstream_repo}


def load(environ: Mapping[str, str], config: Path | None = None) -> tuple[Settings, list[str]]:
    """Read every option; environment wins over the file. Returns the settings and warnings.

    Raises Misconfigured with one sentence for every option that is missing or wrong; where the file cannot be read
    with that alone, since nobody knows what it would have set.
    """
    given = _from_file(config) | _from_environ(environ)
    problems: list[str] = []
    unread = _read_key_files(given, problems)
    fields = {field.name: field for field in dataclasses.fields(Settings)}
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
    settings = Settings(**values)
    if (settings.relay_app_id is None) != (settings.relay_private_key is None):
        raise Misconfigured(
            ["OOTBOT_RELAY_APP_ID and OOTBOT_RELAY_PRIVATE_KEY(_PATH) belong together: set both"]
        )
    return settings, warnings


def secret_files(environ: Mapping[str, str], config: Path | None = None) -> list[Path]:
    """Return the files that hold secrets: the keys, and the settings themselves where a secret stands in them."""
    chosen = config or Path(CONFIG_FILE)
    in_file = _from_file(chosen) if chosen.exists() else {}
    secrets = {field.name for field in dataclasses.fields(Settings) if not field.repr}
    given = in_file | _from_environ(environ)
    keys = [Path(given[name][1]) for name in ("private_key_path", "relay_private_key_path") if name in given]
    return [*([chosen] if secrets & in_file.keys() else []), *keys]


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
        content = settings_file.read(chosen)
    except (OSError, ValueError) as error:
        raise Misconfigured([f"{chosen} cannot be read: {error}"]) from error
    return {name: (f"{chosen}: {name}", parse.as_text(value)) for name, value in content.items()}


def _read_key_files(given: dict[str, tuple[str, str]], problems: list[str]) -> set[str]:
    """Turn PRIVATE_KEY_PATH into PRIVATE_KEY, for both Apps; returns the keys whose files cannot be read."""
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
