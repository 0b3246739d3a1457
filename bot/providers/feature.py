"""What other CIs add to the program, the option that names them, and what to enter in their forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bot.core import setting_types
from bot.core.feature import Feature
from bot.core.setting_types import LOOPBACK
from bot.core.settings import option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.core.settings import Settings

JOB_COMPLETED, WORKFLOW_COMPLETED = "job-completed", "workflow-completed"
CIRCLECI_EVENTS = (JOB_COMPLETED, WORKFLOW_COMPLETED)
# in the order of an agent's life
AGENT_STATES = ("blocked", "connected", "stopping", "lost", "stopped", "disconnected")
AGENT_EVENTS = tuple(f"agent.{state}" for state in AGENT_STATES)
BUILD_EVENTS = tuple(
    f"build.{word}" for word in ("scheduled", "running", "failing", "finished", "skipped", "blocked")
)
JOB_EVENTS = tuple(f"job.{word}" for word in ("scheduled", "started", "finished", "activated"))
BUILDKITE_EVENTS = (*BUILD_EVENTS, *JOB_EVENTS, *AGENT_EVENTS)

CIRCLECI, BUILDKITE = "circleci", "buildkite"
SECRETS_MOST = 2  # two while one is rotated
PROJECTS_MOST, PROJECT_MOST = 1_000, 300
TOKEN = re.compile(r"[!-~]{1,500}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
PIPELINE = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
SLUG = re.compile(r"[A-Za-z0-9]{1,20}/[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
# keys that only its entries have
OF_BUILDKITE = frozenset({"allow_token", "api_token_env", "api_url", "junit"})
API_URL = "https://api.buildkite.com"
# of Buildkite's API tokens, the second one for reports of tests
API_SCOPES = ("read_build_logs", "read_artifacts")
GLOBS_MOST, GLOB_MOST = 20, 200
_LONG = {"github/": "gh/", "bitbucket/": "bb/"}  # CircleCI writes either
PATHS = {CIRCLECI: "/api/circleci/webhooks", BUILDKITE: "/api/buildkite/webhooks"}
WHERE = {
    CIRCLECI: "for each project: Project Settings, Webhooks, Add Webhook",
    BUILDKITE: "Settings, Notification Services, Add a Webhook",
}
DELIVERIES = {
    f"circleci.{JOB_COMPLETED}": "bot.providers.deliveries:record_circleci_job",
    f"circleci.{WORKFLOW_COMPLETED}": "bot.providers.deliveries:record_circleci_workflow",
    **{f"buildkite.{event}": "bot.providers.deliveries:record_buildkite_job" for event in JOB_EVENTS},
    **{f"buildkite.{event}": "bot.providers.deliveries:record_buildkite_build" for event in BUILD_EVENTS},
    **{f"buildkite.{event}": "bot.providers.deliveries:record_buildkite_agent" for event in AGENT_EVENTS},
}
FEATURE = Feature(
    name="providers",
    tables="bot.providers.tables",
    tasks={
        "providers": "bot.providers.deliveries:handle_waiting",
        "provider_log": "bot.providers.files:fetch_log",
        "provider_reports": "bot.providers.files:fetch_reports",
    },
    background=frozenset({"provider_log", "provider_reports"}),
    periodic="bot.providers.feature:periodic",
    views="bot.providers.views:VIEWS",
    senders="bot.providers.admission:SENDERS",
    deliveries=DELIVERIES,
    before_commit="bot.providers.deliveries:write_cells",
    observer="bot.providers.files:make_observer",
    exports="bot.providers.exports:EXPORTS",
    prune="bot.providers.tables:delete_old_rows",
    repositories="bot.providers.deliveries:watch_mapped_repositories",
    reconcile="bot.providers.statuses:compare_statuses",
    doctor="bot.providers.doctor:check_providers",
    settings="bot.providers.feature:ProviderSettings",
    commands={"providers": "bot.console.ci:providers"},
    sections={
        "admin": "bot.providers.doctor:describe_unmapped",
    },
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What an entry of one kind consists of."""

    variable: str  # its key that names the environment variable with the secret
    default: str  # that variable, where the entry names none
    projects: str  # its key with the projects
    form: re.Pattern[str]  # of a project
    example: str


KINDS = {
    CIRCLECI: Kind(
        variable="secret_env", default="CIRCLECI_SECRET", projects="projects", form=SLUG, example="gh/org/name"
    ),
    BUILDKITE: Kind(
        variable="token_env", default="BUILDKITE_TOKEN", projects="pipelines", form=PIPELINE, example="org/pipeline"
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Another CI, with the projects that its secret may speak of."""

    kind: str
    variable: str  # the environment variable with the secret
    secrets: tuple[str, ...] = field(repr=False)
    projects: Mapping[str, str]  # see `normalize_project` -> repository
    allow_token: bool = False  # whether Buildkite may send its token in place of a signature
    # the environment variable with the token of Buildkite's REST API; empty: it is not used
    api_variable: str = ""
    api_token: str = field(default="", repr=False)
    api_url: str = API_URL
    junit: tuple[str, ...] = ()  # globs over the paths of artifacts that are reports of tests

    @property
    def api_scopes(self) -> tuple[str, ...]:
        """The scopes that its API token needs."""
        return API_SCOPES if self.junit else API_SCOPES[:1]

    @property
    def organizations(self) -> frozenset[str]:
        """The organizations of Buildkite that its pipelines are in."""
        return frozenset(project.partition("/")[0] for project in self.projects)


@dataclass(frozen=True, kw_only=True)
class Guide:
    """The form of one entry of the settings."""

    provider: str
    where: str  # the form is found
    fields: list[tuple[str, str]]
    projects: Mapping[str, str]  # with their repositories


def read_providers(text: str, environ: Mapping[str, str]) -> tuple[Provider, ...]:
    """Read a list of tables; raises WrongValues with a sentence for each mistake."""
    try:
        given = msgspec.json.decode(text, type=list[dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise ValueError(f"write a list of tables, [[providers]] in ootbot.toml: {error}") from None
    problems: list[str] = []
    providers = [
        provider
        for at, table in enumerate(given, 1)
        if (provider := _read_provider(at, table, environ, problems))
    ]
    seen: set[tuple[str, str]] = set()
    for provider in providers:
        for project in provider.projects:
            if (provider.kind, project) in seen:
                problems.append(f"the {provider.kind} project {project} is mapped twice: leave one of them")
            seen.add((provider.kind, project))
    if problems:
        raise setting_types.WrongValues(problems)
    return tuple(providers)


def normalize_project(kind: str, project: str) -> str:
    """Return a project's name in the one way it is compared in."""
    folded = project.casefold()
    if kind == CIRCLECI:
        for long, short in _LONG.items():
            folded = f"{short}{folded.removeprefix(long)}" if folded.startswith(long) else folded
    return folded


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """The option."""

    providers: tuple[Provider, ...] = option(
        "Other CIs that deliver here: a list of tables, or JSON; see docs/providers.md. Each names its kind, the "
        "environment variable with its secret, and the repository of each of its projects.",
        read_providers,
        default=(),
        secret=True,
        environ=True,
    )

    @cached_property
    def by_secret(self) -> Mapping[str, Mapping[str, tuple[Provider, ...]]]:
        """The entries of each kind by the secrets that vouch for them."""
        by_kind: dict[str, dict[str, tuple[Provider, ...]]] = {}
        for provider in self.providers:
            of_kind = by_kind.setdefault(provider.kind, {})
            for secret in provider.secrets:
                of_kind[secret] = (*of_kind.get(secret, ()), provider)
        return by_kind


def providers_of(settings: Settings, kind: str | None = None) -> tuple[Provider, ...]:
    """Return the other CIs of the settings, or those of one kind."""
    providers = settings.of(ProviderSettings).providers
    return providers if kind is None else tuple(provider for provider in providers if provider.kind == kind)


def make_guides(settings: Settings) -> list[Guide]:
    """Return the forms of all entries, in their order."""
    return [_make_guide(ci, settings.url) for ci in providers_of(settings)]


def is_unreachable(settings: Settings) -> bool:
    """Whether the addresses to enter are of this machine only: no other CI reaches them."""
    return urlsplit(settings.url).hostname in LOOPBACK


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"providers": 60.0}


def _read_provider(
    at: int, table: dict[str, Any], environ: Mapping[str, str], problems: list[str]
) -> Provider | None:
    name = table.get("kind")
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(name, str):
        problems.append(f"entry {at}: its kind is one of {', '.join(KINDS)}, not {str(name)[:40]!r}")
        return None
    before = len(problems)
    entry = f"entry {at} ({name})"
    known = {"kind", kind.variable, kind.projects} | (OF_BUILDKITE if name == BUILDKITE else set())
    words = f"is none of {', '.join(sorted(known))}"
    problems += [f"{entry}: {key[:40]!r} {words}" for key in sorted(table.keys() - known)]
    allow_token = table.get("allow_token", False)
    if not isinstance(allow_token, bool):
        problems.append(f"{entry}: allow_token is true or false")
    variable = table.get(kind.variable, kind.default)
    secrets = _read_secrets(entry, kind, variable, environ, problems)
    projects = _read_projects(entry, name, kind, table.get(kind.projects), problems)
    api = _read_api(entry, table, environ, problems)
    if len(problems) > before:
        return None
    return Provider(
        kind=name,
        variable=str(variable),
        secrets=secrets,
        projects=projects,
        allow_token=bool(allow_token),
        **api,
    )


def _read_api(
    entry: str, table: dict[str, Any], environ: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """Return the options of Buildkite's REST API, none if it is not used."""
    variable, junit = table.get("api_token_env"), table.get("junit", [])
    if variable is None:
        if junit:
            problems.append(f"{entry}: junit needs api_token_env: artifacts are fetched with an API token")
        return {}
    token = environ.get(variable, "").strip() if isinstance(variable, str) else ""
    if not isinstance(variable, str) or not VARIABLE.fullmatch(variable):
        problems.append(f"{entry}: api_token_env names an environment variable, such as BUILDKITE_API_TOKEN")
    elif not token:
        problems.append(f"{entry}: the environment variable {variable} is missing; it holds the API token")
    elif not TOKEN.fullmatch(token):
        problems.append(f"{entry}: {variable} holds no API token: it is one word of visible characters")
    url = API_URL
    try:
        url = setting_types.https_url(str(table.get("api_url", API_URL)))
    except ValueError as error:
        problems.append(f"{entry}: api_url: {error}")
    globs = [junit] if isinstance(junit, str) else junit
    if not _are_globs(globs):
        problems.append(
            f"{entry}: junit is a glob over the paths of artifacts, or a list of up to {GLOBS_MOST}"
        )
        globs = []
    return {"api_variable": str(variable), "api_token": token, "api_url": url, "junit": tuple(globs)}


def _are_globs(given: object) -> bool:
    return (
        isinstance(given, list)
        and len(given) <= GLOBS_MOST
        and all(isinstance(glob, str) and 0 < len(glob) <= GLOB_MOST for glob in given)
    )


def _read_secrets(
    entry: str, kind: Kind, variable: object, environ: Mapping[str, str], problems: list[str]
) -> tuple[str, ...]:
    if not isinstance(variable, str) or not VARIABLE.fullmatch(variable):
        problems.append(f"{entry}: {kind.variable} names an environment variable, such as {kind.default}")
        return ()
    text = environ.get(variable, "")
    if not text.strip():
        problems.append(f"{entry}: the environment variable {variable} is missing; it holds the secret")
        return ()
    secrets = tuple(secret.strip() for secret in text.split(",") if secret.strip())
    if len(secrets) > SECRETS_MOST:
        problems.append(
            f"{entry}: {variable} holds {len(secrets)} secrets, at most {SECRETS_MOST} are allowed"
        )
    if any(len(secret) < setting_types.MIN_SECRET for secret in secrets):
        least = setting_types.MIN_SECRET
        problems.append(f"{entry}: a secret in {variable} is shorter than {least} characters")
    return secrets


def _read_projects(entry: str, name: str, kind: Kind, given: object, problems: list[str]) -> dict[str, str]:
    if not isinstance(given, dict) or not 0 < len(given) <= PROJECTS_MOST:
        shown = f'{kind.projects} = {{"{kind.example}" = "owner/name"}}'
        problems.append(f"{entry}: write up to {PROJECTS_MOST} projects, as in {shown}")
        return {}
    mapped: dict[str, str] = {}
    for project, repo in given.items():
        key = normalize_project(name, project)
        if not kind.form.fullmatch(project):
            problems.append(f"{entry}: {project[:100]!r} is no project: write {kind.example}")
        elif not isinstance(repo, str) or not setting_types.REPOSITORY.fullmatch(repo):
            problems.append(f"{entry}: {project[:100]} is mapped to {str(repo)[:100]!r}: write owner/name")
        elif key in mapped:
            problems.append(f"the {name} project {key} is mapped twice: leave one of them")
        else:
            mapped[key] = repo
    return mapped


def _make_guide(ci: Provider, url: str) -> Guide:
    secret = f"the value of {ci.variable}"
    if len(ci.secrets) > 1:
        secret = f"the new value of {ci.variable}, which holds two while they are rotated"
    address = f"{url}{PATHS[ci.kind]}"
    if ci.kind == CIRCLECI:
        fields = [("URL", address), ("Secret", secret), ("Events", " and ".join(CIRCLECI_EVENTS))]
    else:
        fields = [
            ("URL", address),
            ("Token", f"{secret}; send it as X-Buildkite-Signature, not as X-Buildkite-Token"),
            ("Events", "all of build.*, job.* and agent.*"),
            ("Pipelines", "only those below, where the organization has others"),
            ("Files", _describe_files(ci)),
        ]
    return Guide(provider=ci.kind, where=WHERE[ci.kind], fields=fields, projects=ci.projects)


def _describe_files(ci: Provider) -> str:
    if not ci.api_token:
        return "none are fetched: api_token_env would name the variable with an API token"
    what = "logs of failed jobs and reports of tests" if ci.junit else "logs of failed jobs"
    return f"{what}, by the API token in {ci.api_variable} with {' and '.join(ci.api_scopes)}"
