"""Statements about how the exports of each sink stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.sinks.tables import StateRow, sink_mark, sink_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.transaction import Transaction
    from bot.sinks.lanes import Lane

S, M = sink_state.c, sink_mark.c


def _of(sink: str, what: str) -> tuple[sa.ColumnElement[bool], ...]:
    return S.sink == sink, S.what == what


async def add_new(tx: Transaction, lanes: Iterable[Lane]) -> None:
    """Note lanes that are new; of these what there was before is to be marked where the settings say so."""
    known = {tuple(row) for row in await tx.run(sa.select(S.sink, S.what))}
    rows = [await _new(tx, lane) for lane in lanes if (lane.sink.name, lane.what) not in known]
    if rows:
        await tx.upsert(sink_state, rows)


async def _new(tx: Transaction, lane: Lane) -> StateRow:
    """Return the state of a lane of which nothing was sent: what was marked up to now is its beginning."""
    marked = (M.sink == lane.sink.name, M.what == lane.what)
    oldest = (await tx.run(sa.select(sa.func.min(M.since)).where(*marked))).scalar()
    began_at = min(tx.now, tx.now if oldest is None else oldest)
    return StateRow(
        sink=lane.sink.name,
        what=lane.what,
        paused=False,
        stopped=None,
        due_at=0,
        failures=0,
        error=None,
        run="",
        version=0,
        sent_at=None,
        sent=0,
        began_at=began_at if lane.sink.since is None else lane.sink.since,
        filled_from=lane.sink.since,
        filled_after=None,
        filled=0,
    )


async def read_all(tx: Transaction) -> dict[tuple[str, str], StateRow]:
    """Return how all lanes stand."""
    rows = await tx.fetch(select(StateRow, sink_state).order_by(S.sink, S.what))
    return {(row["sink"], row["what"]): row for row in rows}


async def read_one(tx: Transaction, sink: str, what: str) -> StateRow | None:
    """Return how a lane stands."""
    return await tx.fetch_first(select(StateRow, sink_state).where(*_of(sink, what)))


async def begin_run(tx: Transaction, state: StateRow, run: str) -> int:
    """Note which run sends now; returns the version of what it sends first, which no clock that is set back lowers."""
    version = max(tx.now, state["version"] + 1)
    values = {"run": run, "version": version}
    await tx.run(sa.update(sink_state).where(*_of(state["sink"], state["what"])).values(values))
    return version


async def is_running(tx: Transaction, sink: str, what: str, run: str) -> bool:
    """Whether no other run has begun since; it stays so until the transaction ends."""
    query = sa.select(S.run).where(*_of(sink, what))
    found = await tx.run(query if tx.sqlite else query.with_for_update())
    current: str | None = found.scalar()
    return current == run


async def note_sent(tx: Transaction, sink: str, what: str, count: int) -> None:
    """Note that rows were sent: whatever was wrong is no more. What is sent next has a version of its own."""
    values = {"sent": S.sent + count, "sent_at": tx.now, "failures": 0, "error": None, "due_at": 0}
    values["version"] = S.version + 1
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(values))


async def note_failure(tx: Transaction, sink: str, what: str, error: str, *, due_at: int) -> None:
    """Note that nothing could be sent, and when to try again."""
    values = {"failures": S.failures + 1, "error": error, "due_at": due_at}
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(values))


async def stop(tx: Transaction, sink: str, what: str, reason: str) -> None:
    """Send nothing more until `resume`."""
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(stopped=reason, error=reason))


async def pause(tx: Transaction, sink: str, what: str) -> None:
    """Send nothing more until `resume`, as the operator wishes."""
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(paused=True))


async def resume(tx: Transaction, sink: str, what: str) -> None:
    """Send again, at once."""
    values = {"paused": False, "stopped": None, "due_at": 0, "failures": 0, "error": None}
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(values))


async def begin_filling(tx: Transaction, sink: str, what: str, since: int) -> None:
    """Have what was received since a time marked from the first key on."""
    earlier = sa.case((S.began_at < since, S.began_at), else_=since)
    values = {"filled_from": since, "filled_after": None, "filled": 0, "began_at": earlier}
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(values))


async def note_filled(tx: Transaction, sink: str, what: str, after: str | None, count: int) -> None:
    """Note up to which key it is marked; None: all of it is."""
    values: dict[str, object] = {"filled": S.filled + count, "filled_after": after}
    if after is None:
        values["filled_from"] = None
    await tx.run(sa.update(sink_state).where(*_of(sink, what)).values(values))


async def remove(tx: Transaction, sink: str, what: str) -> None:
    """Forget a lane."""
    await tx.run(sa.delete(sink_state).where(*_of(sink, what)))
