"""The feature `sinks`: copies in other stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="sinks",
    tables="bot.sinks.tables",
    tasks={
        "sink": "bot.sinks.sending:send_changes",
        "sink_withdraw": "bot.sinks.backfill:withdraw_repository",
        "sinks": "bot.sinks.backfill:tend_sinks",
    },
    background=frozenset({"sink", "sink_withdraw", "sinks"}),
    periodic="bot.sinks.feature:periodic",
    observer="bot.sinks.changes:make_observer",
    check_settings="bot.sinks.queues:find_unwritable_exports",
    prune="bot.sinks.kept_deliveries:give_up_old_deliveries",
    retained="bot.sinks.kept_deliveries:retain_waiting",
    doctor="bot.sinks.administration:check_sinks",
    settings="bot.sinks.settings:SinksSettings",
    commands={"sink": "bot.console.sink:sink", "export": "bot.console.export:export_rows"},
    metrics="bot.sinks.sending:measure_sinks",
    notes="bot.sinks.administration:read_notes",
    sections={"admin": "bot.sinks.administration:show_sinks"},
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind; also without sinks: what is left of them is forgotten."""
    return {"sinks": 60.0}
