"""What sinks may have copies of: test files that jobs left out on purpose, and tests that this missed."""

from __future__ import annotations

from bot.ci.extras.what_ran.tables import td_miss
from bot.ci.test_results.tables import test_exclusion
from bot.db.exports import Export
from bot.db.object_copies import ROW_SHAPES

EXPORTS = (
    Export(
        name="test_exclusions", group="selection", table=test_exclusion, day="received_at", shapes=ROW_SHAPES
    ),
    Export(name="td_misses", group="selection", table=td_miss, day="at", shapes=ROW_SHAPES),
)
