"""How each export of each sink stands: a section of /admin, notes of /readyz, lines of `ootbot doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.feature import Finding, error, load, ok, warning
from bot.sinks import changes, current_rows, queue_rows
from bot.sinks.driver import SinkAway, Stopped, mask_credentials
from bot.sinks.settings import SinksSettings
from bot.web.blocks import AdminSection

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ops.doctor import Target
    from bot.sinks.settings import SinkSettings
    from bot.sinks.tables import QueueStateRow

DURATION_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
REFUSED_SHOWN = 20  # refused rows
ADMIN_HINT = "see /admin or `ootbot sink list`"


@dataclass(frozen=True, kw_only=True)
class QueueStanding:
    """How an export stands at a sink."""

    sink: SinkSettings
    state: QueueStateRow
    waiting: int
    lag: int  # seconds, of the oldest change that the sink does not have
    refused: int

    @property
    def what(self) -> str:
        """The export's name."""
        return self.state["what"]

    @property
    def is_late(self) -> bool:
        """Whether it lags further than the settings allow."""
        return self.waiting > 0 and self.lag > self.sink.max_lag

    @property
    def status(self) -> str:
        """The state in one word."""
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
        return duration_in_words(self.lag) if self.waiting else ""

    @property
    def words(self) -> str:
        """What needs attention, empty where nothing does."""
        told = []
        if self.is_late:
            told.append(f"{self.waiting:,} rows wait, the oldest for {duration_in_words(self.lag)}")
        if self.status == "stopped":
            resume = f"ootbot sink resume {self.sink.name} --what {self.what}"
            told.append(f"stopped: {self.state['stopped']}; fix it, then `{resume}`")
        elif self.state["error"]:
            told.append(self.state["error"])
        if self.refused:
            told.append(f"{self.refused:,} rows were refused: `ootbot sink list --refused` has why")
        return "; ".join(told)


def duration_in_words(seconds: int) -> str:
    """Return a duration in its largest unit."""
    return next((f"{seconds // unit} {name}" for unit, name in DURATION_UNITS if seconds >= unit), "0 s")


async def read_standings(tx: Transaction, settings: Settings) -> list[QueueStanding]:
    """Return how each export stands that a task has looked at, in order."""
    sinks = {sink.name: sink for sink in settings.of(SinksSettings).sinks}
    waiting, refused = await changes.count_waiting(tx), await queue_rows.count_refused(tx)
    standings = []
    for key, state in (await queue_rows.read_states(tx)).items():
        if state["sink"] in sinks:
            left = waiting.get(key)
            standings.append(
                QueueStanding(
                    sink=sinks[state["sink"]],
                    state=state,
                    waiting=left.rows if left else 0,
                    lag=max(tx.now - left.since, 0) // 1000 if left else 0,
                    refused=refused.get(key, 0),
                )
            )
    return standings


async def show_sinks(tx: Transaction, settings: Settings) -> AdminSection:
    """Return the section of the administrator's page."""
    gone = list(await current_rows.read_withdrawn(tx))
    values = {
        "sinks": settings.of(SinksSettings).sinks,
        "standings": await read_standings(tx, settings),
        "refused": await queue_rows.list_refused(tx, limit=REFUSED_SHOWN),
        "withdrawn": gone,
    }
    return AdminSection(template="admin_sinks.html", values=values)


async def read_notes(tx: Transaction, settings: Settings, is_admin: bool) -> list[str]:
    """Return what needs attention; only the administrator sees messages of other stores."""
    if not settings.of(SinksSettings).sinks:
        return []
    standings = await read_standings(tx, settings)
    concerned = [queue for queue in standings if queue.words]
    return [
        f"sink {queue.sink.name}: {queue.what}: {queue.words if is_admin else ADMIN_HINT}"
        for queue in concerned
    ]


async def check_sinks(target: Target) -> list[Finding]:
    """Check whether every sink can be written to."""
    return [await _check_sink(sink) for sink in target.settings.of(SinksSettings).sinks]


async def _check_sink(sink: SinkSettings) -> Finding:
    name = f"sink {sink.name}"
    if sink.paused:
        return warning(name, f"{sink.address}: paused by the settings", "remove `paused` to send again")
    driver = load(sink.kind.driver)(sink)
    try:
        await driver.check_access()
    except Stopped as problem:
        told = mask_credentials(f"{sink.address}: {problem}")
        return error(name, told, "create what is missing, then `ootbot sink resume`")
    except SinkAway as problem:
        todo = "check its address, and the credentials in the environment: docs/sinks.md"
        return error(name, mask_credentials(f"{sink.address}: {problem}"), todo)
    finally:
        await driver.close()
    return ok(name, f"{sink.address} can be written")
