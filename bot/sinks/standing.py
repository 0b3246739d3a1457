"""How each export of each sink stands, in numbers and words: for /admin, /readyz and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.sinks.settings import SinksSettings
from bot.sinks.store import marks, refused_rows, states

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.sinks.settings import SinkSettings
    from bot.sinks.tables import StateRow

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an export of a sink stands."""

    sink: SinkSettings
    state: StateRow
    waiting: int
    lag: int  # seconds, of the oldest change that the sink does not have
    refused: int

    @property
    def what(self) -> str:
        """The export's name."""
        return self.state["what"]

    @property
    def is_late(self) -> bool:
        """Whether it is further behind than it may be."""
        return self.waiting > 0 and self.lag > self.sink.max_lag

    @property
    def status(self) -> str:
        """One word."""
        if self.sink.paused or self.state["paused"]:
            return "paused"
        if self.state["stopped"]:
            return "stopped"
        if self.state["error"]:
            return "away"
        return "filling" if self.state["filled_from"] is not None else "ok"

    @property
    def lag_in_words(self) -> str:
        """How far it is behind, empty where it is not."""
        return in_words(self.lag) if self.waiting else ""

    @property
    def words(self) -> str:
        """What needs attention, empty where nothing does."""
        told = []
        if self.is_late:
            told.append(f"{self.waiting:,} rows wait, the oldest for {in_words(self.lag)}")
        if self.status == "stopped":
            resume = f"ootbot sink resume {self.sink.name} --what {self.what}"
            told.append(f"stopped: {self.state['stopped']}; fix it, then `{resume}`")
        elif self.state["error"]:
            told.append(self.state["error"])
        if self.refused:
            told.append(f"{self.refused:,} rows were refused: `ootbot sink list --refused` has why")
        return "; ".join(told)


def in_words(seconds: int) -> str:
    """Return a duration in its largest unit."""
    return next((f"{seconds // unit} {name}" for unit, name in UNITS if seconds >= unit), "0 s")


async def read_standings(tx: Transaction, settings: Settings) -> list[Standing]:
    """Return how all exports stand that a task has looked at, in order."""
    sinks = {sink.name: sink for sink in settings.of(SinksSettings).sinks}
    waiting, refused = await marks.count_waiting(tx), await refused_rows.count_refused(tx)
    found = []
    for key, state in (await states.read_all(tx)).items():
        if state["sink"] in sinks:
            left = waiting.get(key)
            found.append(
                Standing(
                    sink=sinks[state["sink"]],
                    state=state,
                    waiting=left.rows if left else 0,
                    lag=max(tx.now - left.since, 0) // 1000 if left else 0,
                    refused=refused.get(key, 0),
                )
            )
    return found
