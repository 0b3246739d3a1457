"""What the operator's metrics say of searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import metrics
from bot.oot.culprits import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden


async def measure_searches(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return what shows how many searches there are by state, and how many runs they took."""
    states, runs = await rows.count_states(tx), await rows.count_runs(tx)

    def show() -> None:
        for state, number in states.items():
            metrics.BISECTS.labels(state).set(number)
        metrics.BISECT_RUNS.set(runs)

    return show
