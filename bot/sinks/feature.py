"""The feature `sinks`: copies in other stores."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="sinks",
    tables="bot.sinks.tables",
    tasks={
        "sink": "bot.sinks.send_marks:send_marks",
        "sink_withdraw": "bot.sinks.tend_sinks:withdraw_repository",
        "sinks": "bot.sinks.tend_sinks:tend_sinks",
    },
    background=frozenset({"sink", "sink_withdraw", "sinks"}),
    periodic="bot.sinks.tend_sinks:periodic",
    routes="bot.sinks.attention:add_templates",
    observer="bot.sinks.marking:make_observer",
    check_settings="bot.sinks.lanes:find_problems",
    prune="bot.sinks.keep_deliveries:give_up_old",
    retained="bot.sinks.store.held_rows:retained",
    doctor="bot.sinks.attention:check_sinks",
    settings="bot.sinks.settings:SinksSettings",
    commands={"sink": "bot.console.sink:sink", "export": "bot.console.export:export_rows"},
    metrics="bot.sinks.metrics:measure_sinks",
    notes="bot.sinks.attention:read_notes",
    sections={"admin": "bot.sinks.attention:show_sinks"},
)
