"""What the backends' reports add to the program."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="reports",
    tables="bot.oot.reports.tables",
    tasks={
        "confirm": "bot.oot.reports.confirm:run",
        "verify_commit": "bot.oot.reports.verify_commit:run",
    },
    routes="bot.oot.reports.endpoints:setup",
    openapi="bot.oot.reports.openapi:OPERATIONS",
    doctor="bot.oot.reports.issuer_keys:check",
    commands={"keys": "bot.console.keys:keys", "report": "bot.console.report:report"},
)
