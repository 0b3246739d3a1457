"""The operator's options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bot.core import files, setting_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

AWAITED_ACTIONS = (
    "opened",
    "reopened",
    "synchronize",
)  # without them a gate would wait for runs that never start
PULL_ACTIONS = ("opened", "reopened", "synchronize", "closed", "ready_for_review")


def option(
    help_text: str,
    read: Callable[..., Any] = str,
    *,
    default: Any = ...,
    secret: bool = False,
    show: Callable[[Any], str] | None = None,
    environ: bool = False,
) -> Any:
    """Declare an option; without a default it is required. `show` writes a default as `read` reads it.

    With `environ`, `read` gets the environment as well: the option names variables that hold secrets.
    """
    metadata = {
        "help": help_text, "read": read, "required": default is ..., "show": show, "environ": environ,
    }  # fmt: skip
    value = None if default is ... else default
    return dataclasses.field(default=value, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every option, read and checked."""

    app_id: int = option("The GitHub App's id.", setting_types.positive)
    webhook_secret: tuple[str, ...] = option(
        "The App's webhook secret; two, comma separated, while it is rotated.",
        setting_types.secrets,
        secret=True,
    )
    private_key: str = option("The App's private key: PEM, or base64 of it.", setting_types.pem, secret=True)
    relay_app_id: int | None = option(
        "The id of a second App for the backends, so that upstream need not grant write access to contents or actions.",
        setting_types.positive,
        default=None,
    )
    relay_private_key: str | None = option(
        "The second App's private key.", setting_types.pem, default=None, secret=True
    )
    relay_webhook_secret: tuple[str, ...] = option(
        "The second App's webhook secret.", setting_types.secrets, default=(), secret=True
    )
    github_api_url: str = option(
        "The URL of GitHub's REST API; for GitHub Enterprise Server its /api/v3.",
        setting_types.https_url,
        default="https://api.github.com",
    )
    proxy: str | None = option(
        "An HTTP proxy for all outgoing calls, http://host:port; proxy variables of the environment are ignored.",
        setting_types.proxy_url,
        default=None,
    )
    preset: str | None = option(
        "Options set together for clients written for something else: crcr; one that is set by its own name wins.",
        files.parse_preset,
        default=None,
    )
    upstream_repo: tuple[str, ...] = option(
        "The watched repository, owner/name; several, comma separated.", setting_types.repositories
    )
    allowlist: str = option(
        "The list of participating backends: a file path, or owner/repo:path@ref read through the App."
    )
    default_events: tuple[str, ...] = option(
        "The events of backends whose entry names none: pull_request, or pull_request,push.",
        setting_types.some_of(("pull_request", "push"), needed=("pull_request",)),
        default=("pull_request",),
    )
    pull_actions: tuple[str, ...] = option(
        "The actions of pull requests that are dispatched; a change of the base branch always is.",
        setting_types.some_of(PULL_ACTIONS, needed=AWAITED_ACTIONS),
        default=PULL_ACTIONS,
    )
    pull_refs: tuple[str, ...] = option(
        "The refs whose pushes are about a pull request, {number} standing for its own; comma separated.",
        setting_types.numbered_refs,
        default=("refs/tags/ciflow/trunk/{number}", "refs/heads/ciflow/trunk/{number}"),
    )
    data_dir: Path = option(  # noqa: RUF009 - a field, as the others
        "The folder of the SQLite file.", Path, default=Path("data")
    )
    database_url: str | None = option(
        "The database, postgresql://user:password@host/db; unset: SQLite in DATA_DIR.",
        setting_types.database_url,
        default=None,
        secret=True,
    )
    public_url: str | None = option(
        "The URL at which people and backends reach the bot, without a path; unset: http://HOST:PORT.",
        setting_types.public_url,
        default=None,
    )
    role: str = option(
        "The part of this process: web (requests and pages), worker (deliveries and tasks), or all; SQLite needs all.",
        setting_types.one_of("web", "worker", "all"),
        default="all",
    )
    processes: str = option(
        "The processes of role all: 1, 3 (webhooks, work, pages), or auto: 3 for SQLite on two cores or more.",
        setting_types.one_of("auto", "1", "3"),
        default="auto",
    )
    host: str = option("The address to listen on.", default="127.0.0.1")
    port: int = option("The port to listen on.", setting_types.port, default=8080)
    oidc_audience: tuple[str, ...] = option(
        "The audiences accepted in a backend's token, comma separated.",
        setting_types.words,
        default=("ootbot",),
    )
    oidc_issuers: tuple[setting_types.IssuerConfig, ...] = option(
        "The token issuers trusted for backends: a JSON list, or names from config/issuers.toml.",
        setting_types.issuers,
        default=(setting_types.GITHUB_ACTIONS,),
        show=lambda _default: "github-actions",
    )
    relay_token: str | None = option(
        "The shared token of an outside relay; unset: its endpoint is disabled.",
        setting_types.secret,
        default=None,
        secret=True,
    )
    admin_token: str | None = option(
        "The token for /api/admin and for records of private repositories; unset: both are disabled.",
        setting_types.secret,
        default=None,
        secret=True,
    )
    check_prefix: str = option("The first word of our check runs' names.", setting_types.word, default="oot")
    check_names: str = option(
        "The names of check runs: oot (one per backend), or crcr (one per job, crcr/owner/repo/workflow/job).",
        setting_types.one_of("oot", "crcr"),
        default="oot",
    )
    queue_times: str = option(
        "The jobs that have a queue time: all, or first (of each run, as the others wait for it).",
        setting_types.one_of("all", "first"),
        default="all",
    )
    label_prefixes: tuple[str, ...] = option(
        "Prefixes of labels, before the device's name.",
        setting_types.words,
        default=("ciflow/oot/", "ciflow/crcr/"),
    )
    rate_limit_per_min: int = option(
        "Reports per minute accepted from one backend.", setting_types.positive, default=600
    )
    report_mb_per_hour: int = option(
        "Megabytes of failed tests that one backend may report in an hour.",
        setting_types.positive,
        default=200,
    )
    refused_per_min: int = option(
        "Refusals per minute that one address gets with the reason; further ones get 429.",
        setting_types.positive,
        default=60,
    )
    trusted_proxies: tuple[setting_types.Network, ...] = option(
        "Reverse proxies in front of the bot, networks or addresses: their X-Forwarded-For names the caller.",
        setting_types.networks,
        default=(),
    )
    job_timeout: int = option(
        "The time without a report after which a job counts as timed out.",
        setting_types.duration,
        default=6 * 3600,
    )
    start_timeout: int = option(
        "The time without an answer after which a dispatch counts as never started.",
        setting_types.duration,
        default=24 * 3600,
    )
    raw_retention_days: int = option("Days a raw delivery is kept.", setting_types.positive, default=90)
    others_raw_mb: int = option(
        "Megabytes kept of raw deliveries of accounts that own neither upstream, a listed backend nor the allowlist.",
        setting_types.positive,
        default=1024,
    )
    record_retention_days: int = option("Days a record is kept.", setting_types.positive, default=400)
    receive: str = option(
        "How deliveries arrive: webhook, or pull (from GitHub's delivery log; needs no public URL).",
        setting_types.one_of("webhook", "pull"),
        default="webhook",
    )
    pull_interval: int = option("The interval at which that log is read.", setting_types.duration, default=5)
    comment: str = option(
        "When a comment on the pull request is created: failures (at the first one), always, off.",
        setting_types.one_of("failures", "always", "off"),
        default="failures",
    )
    unlisted: str = option(
        "Reports of unlisted backends: refuse (403), or ignore (200).",
        setting_types.one_of("refuse", "ignore"),
        default="refuse",
    )
    reports: str = option(
        "Reports that lack something: strict (400), or lenient (flagged, as other relays take them).",
        setting_types.one_of("strict", "lenient"),
        default="strict",
    )
    publish_interval: int = option(
        "The minimum interval between updates of one check run or comment, verdicts excepted.",
        setting_types.duration,
        default=10,
    )
    writes_per_min: int = option(
        "Writes to GitHub per minute and installation, dispatches not included.",
        setting_types.positive,
        default=60,
    )
    page_cache: int = option(
        "Seconds a rendered page is cached; 0: no cache.",
        setting_types.count,
        default=5,
    )
    readiness_pass_rate: float = option(
        "Promotion: the pass rate that a backend must exceed; docs/statistics.md explains all conditions.",
        setting_types.share,
        default=0.9,
    )
    readiness_timeout_rate: float = option(
        "Promotion: the share of timeouts it must stay below.", setting_types.share, default=0.01
    )
    readiness_long_rate: float = option(
        "Promotion: the share of long runs it must stay below.", setting_types.share, default=0.01
    )
    readiness_long: int = option(
        "Promotion: the duration beyond which a run counts as long.", setting_types.duration, default=3 * 3600
    )
    readiness_queue: int = option(
        "Promotion: the highest median queue time.", setting_types.duration, default=3600
    )
    readiness_tenure: int = option(
        "Promotion: the shortest time at the present level.", setting_types.duration, default=30 * 86_400
    )
    readiness_data_days: int = option(
        "Promotion: the days with results, of the last 30.", setting_types.positive, default=14
    )
    demotion_days: int = option("Demotion: the days considered.", setting_types.positive, default=7)
    demotion_pass_rate: float = option(
        "Demotion: at this pass rate or below.", setting_types.share, default=0.9
    )
    demotion_timeout_rate: float = option(
        "Demotion: or at this share of timeouts or above.", setting_types.share, default=0.01
    )
    demotion_long: int = option(
        "Demotion: or when the median time from dispatch to the last report is longer.",
        setting_types.duration,
        default=3 * 3600,
    )
    log_format: str = option(
        "The log's format: console, or json for machines.",
        setting_types.one_of("console", "json"),
        default="console",
    )
    log_level: str = option(
        "The lowest level logged: debug, info, warning or error.",
        setting_types.one_of("debug", "info", "warning", "error"),
        default="info",
    )

    of_features: Mapping[type, Any] = dataclasses.field(default_factory=dict)  # by class; see `of`

    @property
    def url(self) -> str:
        """The URL at which people and backends reach the bot, without a trailing slash."""
        return (self.public_url or f"http://{self.listening}").rstrip("/")

    @property
    def listening(self) -> str:
        """HOST:PORT as URLs have them: an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def pulls(self) -> bool:
        """Whether deliveries are read from GitHub's log instead of being sent to us."""
        return self.receive == "pull"

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.data_dir / 'ootbot.db'}"

    def of(self, kind: type[T]) -> T:
        """Return a feature's options, its defaults where none were read."""
        of_kind: T = self.of_features[kind] if kind in self.of_features else kind()
        return of_kind

    def is_upstream(self, repo: str) -> bool:
        """Whether this is one of the watched repositories, ignoring case."""
        return repo.casefold() in {name.casefold() for name in self.upstream_repo}


def options(*kinds: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the options that some classes declare, by name."""
    fields = (field for kind in kinds for field in dataclasses.fields(kind))
    return {field.name: field for field in fields if "help" in field.metadata}
