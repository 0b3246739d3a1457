"""What collecting adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="collect",
    views="bot.evidence.collect.uploads:ENDPOINTS",
    routes="bot.evidence.collect.uploads:setup",
    tables="bot.evidence.collect.tables",
    exports="bot.evidence.collect.artifacts:EXPORTS",
    tasks={
        "artifacts": "bot.evidence.collect.artifacts:list_artifacts",
        "collect": "bot.evidence.collect.artifacts:fetch_artifact",
        "log": "bot.evidence.collect.fetch_log:fetch_log",
        "upload": "bot.evidence.collect.uploads:read_upload",
        "ci_sweep": "bot.evidence.collect.backfill:request_overdue",
    },
    background=frozenset({"artifacts", "collect", "log", "upload"}),
    periodic="bot.evidence.collect.feature:periodic",
    before_commit="bot.evidence.collect.uploads:request_waiting",
    sections={
        "admin": "bot.jobs.collection:admin_section",
    },
    prune="bot.evidence.collect.blobs:prune_collected",
    doctor="bot.evidence.collect.doctor:check_collecting",
    commands={"ci": "bot.console.ci:ci"},
    settings="bot.jobs.settings:CollectSettings",
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"ci_sweep": 600.0}
