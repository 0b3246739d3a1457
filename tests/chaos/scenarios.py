"""Which faults are there? Every scenario of the suite, in the order of the table."""

from __future__ import annotations

from tests.chaos import (
    banned,
    crashed,
    databases,
    killed,
    many_processes,
    outages,
    powerless,
    restarted,
    skewed,
    soak,
    stormy,
    tokens,
    upgraded,
)

SCENARIOS = (
    *killed.SCENARIOS, *crashed.SCENARIOS, *restarted.SCENARIOS, *powerless.SCENARIOS, *databases.SCENARIOS,
    *stormy.SCENARIOS, *banned.SCENARIOS, *tokens.SCENARIOS, *many_processes.SCENARIOS, *skewed.SCENARIOS,
    *upgraded.SCENARIOS, *outages.SCENARIOS, *soak.SCENARIOS,
)  # fmt: skip
