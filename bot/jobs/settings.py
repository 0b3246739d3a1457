"""The options of jobs: whose CI is collected and at what cost; names, groups and branches of the grid."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from bot.core import files, setting_types
from bot.core.json_fields import FULL_NAME
from bot.core.settings import option
from bot.core.text import name_matches
from bot.jobs import job_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OTHER_KIND = "other"  # indexed only
Kinds = tuple[tuple[str, tuple[str, ...]], ...]  # kind and its globs, in order
DEFAULT_KINDS: Kinds = (
    ("usage", ("usage-log*", "logs-test-*", "*utilization*")),
    ("jsons", ("test-jsons-*",)),
    ("sccache", ("sccache-stats*",)),
    ("runreport", ("torchci-reports*",)),
    ("junit", ("test-report*", "*junit*", "*test-results*", "*surefire*", "*pytest*")),
    ("metrics", ("ootbot-metrics*",)),
    ("benchmark", ("benchmark-results*", "*perf-stats*")),
)
KNOWN_KINDS = frozenset(kind for kind, _ in DEFAULT_KINDS) | {OTHER_KIND}
GIB = 1024 * 1024 * 1024
SCHEMES = frozenset({"s3", "gs", "az"})  # of buckets
UPSTREAM, BACKENDS, OFF = "upstream", "backends", "off"
GroupPatterns = tuple[tuple[str, str], ...]  # name -> pattern; the first that matches wins
NamedPatterns = tuple[tuple[str, str], ...]
BRANCHES_MOST = 50
HIDDEN = ("*stale*", "*label*", "generate-test-matrix*")


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """The groups for every repository, and those that single repositories put before them."""

    everywhere: GroupPatterns
    own: tuple[tuple[str, GroupPatterns], ...] = ()  # by repository, case folded

    def of(self, names: Collection[str]) -> GroupPatterns:
        """Return the groups of a repository, given by all its names, case folded.

        Its own come first, and replace those of the same name for all.
        """
        first = tuple(group for repo, groups in self.own if repo in names for group in groups)
        named = {name for name, _ in first}
        return (*first, *(group for group in self.everywhere if group[0] not in named))


def kind_of(name: str, kinds: Kinds) -> str:
    """Return the kind of the artifact of this name, ignoring case."""
    folded = name.casefold()
    return next((kind for kind, globs in kinds if name_matches(folded, globs)), OTHER_KIND)


def parse_kinds(text: str) -> Kinds:
    """Read the setting: a JSON object from kind to a glob, or a list of them; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, str | list[str]])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from kind to globs, as in {{"junit": ["*junit*"]}}: {error}'
        ) from None
    if unknown := given.keys() - KNOWN_KINDS:
        raise ValueError(
            f"{', '.join(sorted(unknown))} is no kind of artifact: known are {', '.join(sorted(KNOWN_KINDS))}"
        )
    return tuple(
        (kind, (globs,) if isinstance(globs, str) else tuple(globs)) for kind, globs in given.items()
    )


def format_kinds(kinds: Kinds) -> str:
    """Return kinds as the setting is written."""
    return msgspec.json.encode(dict(kinds)).decode()


def parse_sides(text: str) -> tuple[str, ...]:
    """Read whose CI is collected."""
    sides = setting_types.words(text)
    if unknown := [word for word in sides if word not in {UPSTREAM, BACKENDS, OFF}]:
        raise ValueError(f"{unknown[0]!r} is not one of upstream, backends, off")
    if OFF in sides and len(sides) > 1:
        raise ValueError("off stands alone")
    return tuple(word for word in sides if word != OFF)


def is_trusted_branch(branch: str, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether a branch is trusted: it matches a pattern, or there are none and it is the default one."""
    if patterns:
        return any(fnmatchcase(branch, pattern) for pattern in patterns)
    return branch == default_branch


def is_remote(where: str) -> bool:
    """Whether blobs are kept in a bucket, not in a folder."""
    return "://" in where


def parse_blobs_place(text: str) -> str:
    """Read where blobs are kept: a folder, or a bucket that the installed packages can reach."""
    if not is_remote(text):
        return text
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES or not rest.strip("/"):
        raise ValueError(f"{text!r} is neither a folder nor s3://bucket/prefix, gs://... or az://...")
    if importlib.util.find_spec("obstore") is None:
        raise ValueError(
            f"{scheme}:// needs the extra s3: pip install 'ootbot[s3]', or python3 dev.py setup s3"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """What is collected of the repositories' own CI, and how much it may cost."""

    ci: tuple[str, ...] = option(
        "Whose CI is collected: upstream, backends (listed at L2 or above), both, or off.",
        parse_sides,
        default=(UPSTREAM, BACKENDS),
        show=lambda chosen: ",".join(chosen) or OFF,
    )
    ci_workflows: tuple[str, ...] = option(
        "Globs over a workflow's name or path, comma separated; one that begins with ! takes away.",
        setting_types.words,
        default=("*",),
    )
    ci_trusted_branches: tuple[str, ...] = option(
        "Branches whose own runs feed baselines, globs; unset: the default branch.",
        setting_types.words,
        default=(),
    )
    ci_logs: str = option(
        "Whose logs are fetched: off, failed (failure, timed_out, cancelled after start), all.",
        setting_types.one_of("off", "failed", "all"),
        default="failed",
    )
    ci_artifacts: Kinds = option(  # noqa: RUF009 - a field, as the others
        "The kind of an artifact by globs over its name: a TOML table, or JSON; the first that matches.",
        parse_kinds,
        default=DEFAULT_KINDS,
        show=format_kinds,
    )
    ci_calls_per_hour: int = option(
        "API calls an hour that an installation may spend on collecting.",
        setting_types.positive,
        default=2000,
    )
    ci_bytes_per_hour: int = option(
        "Bytes an hour that may be downloaded for an installation.",
        setting_types.size,
        default=20 * GIB,
        show=setting_types.size_in_words,
    )
    ci_workers: int = option("Child processes that parse.", setting_types.positive, default=1)
    blobs: str | None = option(
        "Where logs and other large files are kept: a folder, or s3://bucket/prefix, gs://... or az://... "
        "(with the extra s3); unset: DATA_DIR/blobs.",
        parse_blobs_place,
        default=None,
    )
    blobs_max_bytes: int = option(
        "Bytes of blobs; over it the oldest logs are deleted first.",
        setting_types.size,
        default=20 * GIB,
        show=setting_types.size_in_words,
    )
    ci_log_retention_days: int = option("Days a log is kept.", setting_types.positive, default=30)
    ci_result_retention_days: int = option(
        "Days the results read from artifacts are kept.", setting_types.positive, default=180
    )
    ci_utilization_retention_days: int = option(
        "Days the time series of machines are kept.", setting_types.positive, default=90
    )


def read_groups(text: str) -> GroupSettings:
    """Read groups, JSON: name -> pattern, and `owner/name` -> such a table; raises ValueError.

    If there are only tables of repositories, the others keep the shipped groups.
    """
    try:
        given = msgspec.json.decode(text, type=dict[str, str | dict[str, str]])
    except msgspec.MsgspecError as error:
        raise ValueError(
            'write a table of texts, as in {"Linux": "linux"}, or of such tables by repository, '
            f'as in {{"org/npu": {{"GPU": "npu"}}}}: {error}'
        ) from None
    everywhere = {name: patterns for name, patterns in given.items() if isinstance(patterns, str)}
    tables = {name: patterns for name, patterns in given.items() if not isinstance(patterns, str)}
    own: dict[str, GroupPatterns] = {}
    for repo, table in tables.items():
        if not FULL_NAME.fullmatch(repo):
            raise ValueError(f"{repo[:80]!r} is no repository: write owner/name")
        if repo.casefold() in own:
            raise ValueError(f"{repo} is there twice")
        own[repo.casefold()] = _checked_patterns(table, f" of {repo}")
    checked = _checked_patterns(everywhere, "") if everywhere or not own else shipped_groups().everywhere
    return GroupSettings(everywhere=checked, own=tuple(own.items()))


def shipped_groups() -> GroupSettings:
    """Return the groups that apply unless the settings choose others."""
    return GroupSettings(
        everywhere=tuple(tomllib.loads(files.config_file("ci_groups.toml").read_text()).items())
    )


def groups_as_json(groups: GroupSettings) -> str:
    """Return groups as `read_groups` takes them."""
    own = {repo: dict(table) for repo, table in groups.own}
    return msgspec.json.encode(dict(groups.everywhere) | own).decode()


def table(text: str) -> dict[str, str]:
    """Read a table from text to text, as JSON; raises ValueError."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ValueError(f'write a table of texts, as in {{"Linux": "linux"}}: {error}') from None


def aliases(text: str) -> NamedPatterns:
    """Read aliases: pattern -> replacement."""
    pairs = tuple(table(text).items())
    job_names.check_patterns([pattern for pattern, _ in pairs])
    for pattern, replacement in pairs:
        job_names.check_replacement(pattern, replacement)
    return pairs


def patterns(text: str) -> tuple[str, ...]:
    """Read patterns over names, comma separated."""
    globs = setting_types.words(text)
    job_names.check_patterns(globs)
    return globs


def costs(text: str) -> tuple[tuple[str, float], ...]:
    """Read what an hour of a runner costs: glob over the label -> money."""
    try:
        prices = msgspec.json.decode(text, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from label to money an hour, as in {{"npu.*": 4.2}}: {error}'
        ) from None
    if any(not 0 <= money < 1e6 for money in prices.values()):
        raise ValueError("money an hour is a number from 0 to 1,000,000")
    return tuple(prices.items())


def _as_json(pairs: tuple[tuple[str, object], ...]) -> str:
    return msgspec.json.encode(dict(pairs)).decode()


@dataclass(frozen=True, kw_only=True)
class TrunkSettings:
    """What the grid shows, and how."""

    ci_branches: tuple[str, ...] = option(
        "Branches watched beside the default one: globs, comma separated.",
        setting_types.words,
        default=(),
    )
    ci_hide: tuple[str, ...] = option(
        "Workflows and jobs that the grid leaves out: globs over their names, comma separated.",
        setting_types.words,
        default=HIDDEN,
    )
    ci_blocking: tuple[str, ...] = option(
        "Jobs that decide whether a commit is green: patterns (RE2) over `workflow / job`, comma separated; "
        "unset: every job that is not unstable.",
        patterns,
        default=(),
    )
    ci_checks: str = option(
        "Whether check runs of other Apps are columns of the grid: on, off.",
        setting_types.one_of("on", "off"),
        default="off",
    )
    ci_runner_cost: tuple[tuple[str, float], ...] = option(
        'Money an hour by glob over a runner\'s label, as in {"npu.*": 4.2}: a TOML table, or JSON.',
        costs,
        default=(),
        show=_as_json,
    )
    ci_groups: GroupSettings = option(  # noqa: RUF009 - a field, as the others
        "Groups of the grid's columns, name to pattern (RE2): a TOML table, or JSON; the first that matches. "
        'A table in it that is named as a repository, `[ci_groups."org/npu"]`, comes first there.',
        read_groups,
        default=shipped_groups(),
        show=groups_as_json,
    )
    ci_aliases: NamedPatterns = option(  # noqa: RUF009 - the same
        "Names that jobs had before, pattern (RE2) to replacement: a TOML table, or JSON.",
        aliases,
        default=(),
        show=_as_json,
    )
    ci_runners: NamedPatterns = option(  # noqa: RUF009 - the same
        "What a job's runner is counted under, pattern (RE2) over its labels to a name: a TOML table, or JSON; "
        "the first that matches. Unset: its second label, else its first.",
        aliases,
        default=(),
        show=_as_json,
    )


def _checked_patterns(table: Mapping[str, str], where: str) -> GroupPatterns:
    try:
        job_names.check_count(len(table))
    except ValueError as error:
        raise ValueError(f"groups{where}: {error}") from None
    for name, pattern in table.items():
        try:
            job_names.compile_pattern(pattern)
        except ValueError as error:
            raise ValueError(f"group {name[:80]}{where}: {error}") from None
    return tuple(table.items())
