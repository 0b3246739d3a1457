"""What the backends' reports add to the program."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="reports",
    tables="bot.oot.reports.tables",
    tasks={
        "confirm": "bot.oot.reports.confirm:confirm_run",
        "verify_commit": "bot.oot.reports.verify_commit:verify_commit",
    },
    routes="bot.oot.reports.endpoints:setup",
    views="bot.oot.reports.views:VIEWS",
    doctor="bot.oot.reports.issuer_keys:check",
    commands={"keys": "bot.console.keys:keys", "report": "bot.console.report:report"},
)
