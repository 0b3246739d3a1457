"""Which faults are there? Every scenario of the suite, in the order of the table."""

from __future__ import annotations

from tests.chaos import crashed, killed, stormy

SCENARIOS = (*killed.SCENARIOS, *crashed.SCENARIOS, *stormy.SCENARIOS)
