"""The options of collecting."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.ci.collect.parse import artifact_kinds
from bot.core import setting_types
from bot.core.settings import option

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1024 * 1024 * 1024
SCHEMES = frozenset({"s3", "gs", "az"})  # of buckets
UPSTREAM, BACKENDS, OFF = "upstream", "backends", "off"


def parse_sides(text: str) -> tuple[str, ...]:
    """Read whose CI is collected."""
    found = setting_types.words(text)
    if unknown := [word for word in found if word not in {UPSTREAM, BACKENDS, OFF}]:
        raise ValueError(f"{unknown[0]!r} is not one of upstream, backends, off")
    if OFF in found and len(found) > 1:
        raise ValueError("off stands alone")
    return tuple(word for word in found if word != OFF)


def is_trusted_branch(branch: str, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether a branch of the repository is trusted: it matches a pattern, or without any is the default one."""
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
    ci_artifacts: artifact_kinds.Kinds = option(  # noqa: RUF009 - a field, as the others
        "The kind of an artifact by globs over its name: a TOML table, or JSON; the first that matches.",
        artifact_kinds.parse_kinds,
        default=artifact_kinds.DEFAULT,
        show=artifact_kinds.format_kinds,
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
