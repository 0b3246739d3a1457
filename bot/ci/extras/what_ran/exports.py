"""What sinks may have copies of: test files that jobs left out on purpose, and tests that this missed."""

from __future__ import annotations

from bot.ci.extras.exported_rows import rows_export
from bot.ci.extras.what_ran.tables import td_miss
from bot.ci.test_results.tables import test_exclusion

EXPORTS = (
    rows_export("test_exclusions", test_exclusion, day="received_at", group="selection"),
    rows_export("td_misses", td_miss, group="selection"),
)
