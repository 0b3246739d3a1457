"""What ingest adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="ingest",
    tables="bot.ingest.tables",
    tasks={
        "identify": "bot.ingest.reconcile:identify_unknown",
        "prune": "bot.ingest.retention:prune_expired",
        "pull": "bot.ingest.redeliver:pull_deliveries",
        "reconcile": "bot.ingest.reconcile:reconcile_records",
        "redeliver": "bot.ingest.redeliver:sweep_logs",
    },
    periodic="bot.ingest.feature:periodic",
    views="bot.ingest.views:VIEWS",
    senders="bot.ingest.webhooks:SENDERS",
    doctor="bot.ingest.repositories:check_repository_ids",
    exports="bot.ingest.exports:EXPORTS",
    commands={
        "replay": "bot.console.upkeep:replay",
        "redeliver": "bot.console.upkeep:redeliver",
        "upstream": "bot.console.backends:upstream",
    },
)


def periodic(settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind; the log is pulled only where no webhook can reach us."""
    pulling = {"pull": float(settings.pull_interval)} if settings.pulls else {}
    return {"identify": 60.0, "prune": 3600.0, "reconcile": 600.0, "redeliver": 600.0} | pulling
