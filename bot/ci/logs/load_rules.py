"""Task log_rules: reads the rules for logs again. A wrong file leaves its last good version in force and says so.

Where the rules have changed, or the program came with others, the stored logs are looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.logs import reclassify
from bot.ci.logs.parse import rules
from bot.ci.logs.settings import LogsSettings
from bot.ci.logs.store import ruleset_rows
from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.allowlist import source as source_file

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.logs.load_rules")

EVERY = 600.0  # seconds


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"log_rules": EVERY}


async def load_rules(context: Context, _task: Task) -> None:
    """Read every source: those of the settings, and the own file of every repository of which there are logs."""
    async with context.store.read() as tx:
        repos = await ruleset_rows.repositories_with_logs(tx)
    unreachable: RetryLater | None = None
    for source in context.settings.of(LogsSettings).ci_log_rules:
        unreachable = await _read(context, source, source, optional=False) or unreachable
    for repo in repos:
        own = ruleset_rows.own_source(repo)
        unreachable = await _read(context, f"{repo}:{ruleset_rows.OWN}", own, optional=True) or unreachable
    async with context.store.transaction() as tx:
        await reclassify.enqueue_due(tx, context.settings)
    if unreachable:
        raise unreachable


async def _read(context: Context, place: str, source: str, *, optional: bool) -> RetryLater | None:
    """Read one source and store what it says; returns the error of a GitHub that cannot be reached."""
    content, error, count = "", None, 0
    try:
        content = await source_file.read_source(place, context.app_for)
        count = len(rules.parse_rules(content.encode(), source).rules)
    except RetryLater as problem:
        return problem
    except source_file.NoText as problem:
        cause = problem.__cause__
        absent = isinstance(cause, GitHubRefused) and cause.gone
        if optional and not absent:
            return None
        error = None if optional else f"{source} cannot be read: {problem}"
    except rules.RulesetError as problem:
        error = str(problem)
    async with context.store.transaction() as tx:
        await ruleset_rows.store_version(tx, source, content, error=error, count=count)
    if error:
        log.error(
            "rules for logs are wrong; the last good version stays in force", source=source, error=error
        )
    return None
