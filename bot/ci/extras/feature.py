"""The feature `extras`: the files that all of them read, and what could not be used of these."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="extras",
    tables="bot.ci.extras.tables",
    exports="bot.ci.extras.exported_files:EXPORTS",
    prune="bot.ci.extras.source_rows:prune",
    sections={
        "run": "bot.ci.extras.left_out:show_run",
        "job": "bot.ci.extras.left_out:show_job",
    },
)
