"""Which faults are there? Every scenario of the suite, in the order of the table."""

from __future__ import annotations

from tests.chaos import banned, crashed, killed, outages, powerless, stormy, tokens

SCENARIOS = (
    *killed.SCENARIOS,
    *crashed.SCENARIOS,
    *powerless.SCENARIOS,
    *stormy.SCENARIOS,
    *banned.SCENARIOS,
    *tokens.SCENARIOS,
    *outages.SCENARIOS,
)
