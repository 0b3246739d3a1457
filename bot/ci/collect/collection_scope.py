"""Whose CI is collected, and which of its logs, by the settings."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.ci.collect.job_names import FAILED
from bot.ci.collect.settings import BACKENDS, UPSTREAM, CollectSettings
from bot.oot.allowlist import rows as allowlists
from bot.web.blocks import AdminSection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow

LEAST_LEVEL = 2  # of a backend: results of L1 are shown nowhere


async def admin_section(_tx: Transaction, settings: Settings) -> AdminSection:
    """Return what the administrator's page says of collecting."""
    return AdminSection(template="admin_collecting.html", values={"collecting": describe_scope(settings)})


def describe_scope(settings: Settings) -> str:
    """Return whose CI is collected, and how to change it."""
    if chosen := settings.of(CollectSettings).ci:
        return f"of {' and '.join(chosen)} (CI={','.join(chosen)}); set CI=off to collect nothing"
    return "off (CI=off); set CI=upstream,backends to collect logs and artifacts"


async def run_refusal(
    tx: Transaction, settings: Settings, repo: str, *, workflow: str | None, path: str | None = None
) -> str | None:
    """Return why a run of a repository is not collected, None where it is."""
    chosen = settings.of(CollectSettings).ci
    side = UPSTREAM if settings.is_upstream(repo) else BACKENDS
    if side not in chosen or not (side == UPSTREAM or await _is_backend(tx, repo)):
        return f"CI={','.join(chosen) or 'off'}"
    patterns = settings.of(CollectSettings).ci_workflows
    return None if has_workflow(patterns, workflow, path) else f"CI_WORKFLOWS={','.join(patterns)}"


def has_workflow(patterns: Sequence[str], name: str | None, path: str | None) -> bool:
    """Whether a workflow is among those chosen: a glob takes it in, one that begins with ! takes it away."""
    known = [text.casefold() for text in (name, path) if text]
    taken = [pattern[1:].casefold() for pattern in patterns if pattern.startswith("!")]
    given = [pattern.casefold() for pattern in patterns if not pattern.startswith("!")] or ["*"]
    if any(fnmatchcase(text, pattern) for text in known for pattern in taken):
        return False
    return given == ["*"] or any(fnmatchcase(text, pattern) for text in known for pattern in given)


def log_refusal(settings: Settings, conclusion: str | None) -> str | None:
    """Return why the log of a job that ended so is not fetched by the settings, None where it is."""
    chosen = settings.of(CollectSettings).ci_logs
    if chosen == "off" or (chosen == "failed" and conclusion not in FAILED):
        return f"CI_LOGS={chosen}"
    return None


def never_started(job: WorkflowJobRow) -> bool:
    """Whether a job ended without ever having had a runner: it has no log."""
    return job["conclusion"] == "skipped" or not (job["runner_name"] or job["steps"])


async def _is_backend(tx: Transaction, repo: str) -> bool:
    listed = await allowlists.in_force(tx)
    entry = listed.find(repo) if listed else None
    return entry is not None and entry.level >= LEAST_LEVEL
