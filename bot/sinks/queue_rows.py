"""Statements about the queues of sinks: their states, refused rows, and pages of an export's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.exports import decode_key
from bot.db.rows import select
from bot.ingest import repositories
from bot.sinks.tables import QueueStateRow, RefusedRow, sink_mark, sink_refused, sink_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.db.exports import Export, RowKey
    from bot.db.transaction import Transaction
    from bot.sinks.queues import ExportQueue

STATE, CHANGE = sink_state.c, sink_mark.c
REFUSED = sink_refused.c
KEYS_PER_QUERY = 200


@dataclass(frozen=True, kw_only=True)
class KeyPage:
    """Keys in order, each with its time; the next page begins after `after`, None: this is the last."""

    times: dict[RowKey, int]  # epoch milliseconds
    after: RowKey | None


async def add_new_states(tx: Transaction, queues: Iterable[ExportQueue]) -> None:
    """Store the states of new queues; where the settings say so, older rows are backfilled."""
    known = {tuple(row) for row in await tx.run(sa.select(STATE.sink, STATE.what))}
    rows = [await _new_state(tx, queue) for queue in queues if (queue.sink.name, queue.what) not in known]
    if rows:
        await tx.upsert(sink_state, rows)


async def read_states(tx: Transaction) -> dict[tuple[str, str], QueueStateRow]:
    """Return the states of all queues."""
    rows = await tx.fetch(select(QueueStateRow, sink_state).order_by(STATE.sink, STATE.what))
    return {(row["sink"], row["what"]): row for row in rows}


async def read_state(tx: Transaction, sink: str, what: str) -> QueueStateRow | None:
    """Return the state of a queue."""
    return await tx.fetch_first(select(QueueStateRow, sink_state).where(*_of_queue(sink, what)))


async def begin_run(tx: Transaction, state: QueueStateRow, run: str) -> int:
    """Note which run sends now; returns its first version, which rises even if the clock is set back."""
    version = max(tx.now, state["version"] + 1)
    values = {"run": run, "version": version}
    await tx.run(sa.update(sink_state).where(*_of_queue(state["sink"], state["what"])).values(values))
    return version


async def is_running(tx: Transaction, sink: str, what: str, run: str) -> bool:
    """Whether this run is still the newest; it stays so until the transaction ends."""
    query = sa.select(STATE.run).where(*_of_queue(sink, what))
    result = await tx.run(query if tx.sqlite else query.with_for_update())
    current: str | None = result.scalar()
    return current == run


async def note_sent(tx: Transaction, sink: str, what: str, count: int) -> None:
    """Note that rows were sent, which ends a failure; the next batch has the next version."""
    values = {"sent": STATE.sent + count, "sent_at": tx.now, "failures": 0, "error": None, "due_at": 0}
    values["version"] = STATE.version + 1
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(values))


async def note_failure(tx: Transaction, sink: str, what: str, error: str, *, due_at: int) -> None:
    """Note a failure, and when to try again."""
    values = {"failures": STATE.failures + 1, "error": error, "due_at": due_at}
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(values))


async def stop_queue(tx: Transaction, sink: str, what: str, reason: str) -> None:
    """Send nothing more until `resume`."""
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(stopped=reason, error=reason))


async def pause_queue(tx: Transaction, sink: str, what: str) -> None:
    """Send nothing more until `resume`, as the operator asked."""
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(paused=True))


async def resume_queue(tx: Transaction, sink: str, what: str) -> None:
    """Send again, at once."""
    values = {"paused": False, "stopped": None, "due_at": 0, "failures": 0, "error": None}
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(values))


async def begin_backfill(tx: Transaction, sink: str, what: str, since: int) -> None:
    """Start a backfill of the rows received since a time."""
    earlier = sa.case((STATE.began_at < since, STATE.began_at), else_=since)
    values = {"filled_from": since, "filled_after": None, "filled": 0, "began_at": earlier}
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(values))


async def note_backfilled(tx: Transaction, sink: str, what: str, after: str | None, count: int) -> None:
    """Note up to which key a backfill is done; None: it is complete."""
    values: dict[str, object] = {"filled": STATE.filled + count, "filled_after": after}
    if after is None:
        values["filled_from"] = None
    await tx.run(sa.update(sink_state).where(*_of_queue(sink, what)).values(values))


async def remove_state(tx: Transaction, sink: str, what: str) -> None:
    """Forget the state of a queue."""
    await tx.run(sa.delete(sink_state).where(*_of_queue(sink, what)))


async def note_refused(tx: Transaction, sink: str, what: str, reasons: Mapping[str, str]) -> None:
    """Note the keys of refused rows, with the reasons."""
    rows = [
        RefusedRow(sink=sink, what=what, key=key, error=error, at=tx.now)
        for key, error in sorted(reasons.items())
    ]
    if rows:
        await tx.upsert(sink_refused, rows, replaced=("error", "at"))


async def forget_refused(tx: Transaction, sink: str, what: str, keys: Sequence[str]) -> None:
    """Forget refused rows that were taken after all."""
    of_lane = (REFUSED.sink == sink, REFUSED.what == what)
    if (await tx.run(sa.select(REFUSED.key).where(*of_lane).limit(1))).scalar() is None:
        return
    for start in range(0, len(keys), KEYS_PER_QUERY):
        part = list(keys[start : start + KEYS_PER_QUERY])
        await tx.run(sa.delete(sink_refused).where(*of_lane, REFUSED.key.in_(part)))


async def list_refused(
    tx: Transaction, *, sink: str | None = None, what: str | None = None, key: str | None = None, limit: int
) -> list[RefusedRow]:
    """Return refused rows, the newest first."""
    query = select(RefusedRow, sink_refused)
    for column, value in ((REFUSED.sink, sink), (REFUSED.what, what), (REFUSED.key, key)):
        if value is not None:
            query = query.where(column == value)
    return await tx.fetch(
        query.order_by(REFUSED.at.desc(), REFUSED.sink, REFUSED.what, REFUSED.key).limit(limit)
    )


async def count_refused(tx: Transaction) -> dict[tuple[str, str], int]:
    """Return how many rows were refused, by sink and export."""
    query = sa.select(REFUSED.sink, REFUSED.what, sa.func.count()).group_by(REFUSED.sink, REFUSED.what)
    return {(sink, what): count for sink, what, count in await tx.run(query)}


async def remove_refused(tx: Transaction, sink: str, what: str) -> None:
    """Forget all refused rows of a queue."""
    await tx.run(sa.delete(sink_refused).where(REFUSED.sink == sink, REFUSED.what == what))


async def read_key_page(
    tx: Transaction,
    export: Export,
    *,
    after: str | None,
    limit: int,
    since: int = 0,
    repository_id: int | None = None,
) -> KeyPage:
    """Return the next keys, of rows since a time or of one repository."""
    columns = list(export.key_columns)
    at = sa.func.max(export.day_column)
    query = sa.select(*columns, at).group_by(*columns).order_by(*columns).limit(limit)
    if after is not None:
        query = query.where(_comes_after(columns, decode_key(after)))
    if since:
        query = query.where(export.day_column >= since)
    if export.condition is not None:
        query = query.where(export.condition)
    if repository_id is not None:
        query = query.where(await _of_repository(tx, export, repository_id))
    rows = [tuple(row) for row in await tx.run(query)]
    return KeyPage(
        times={row[:-1]: row[-1] or 0 for row in rows}, after=rows[-1][:-1] if len(rows) == limit else None
    )


def _of_queue(sink: str, what: str) -> tuple[sa.ColumnElement[bool], ...]:
    return STATE.sink == sink, STATE.what == what


async def _new_state(tx: Transaction, queue: ExportQueue) -> QueueStateRow:
    """Return the state of a new queue, which begins with its oldest change."""
    marked = (CHANGE.sink == queue.sink.name, CHANGE.what == queue.what)
    oldest = (await tx.run(sa.select(sa.func.min(CHANGE.since)).where(*marked))).scalar()
    began_at = min(tx.now, tx.now if oldest is None else oldest)
    return QueueStateRow(
        sink=queue.sink.name,
        what=queue.what,
        paused=False,
        stopped=None,
        due_at=0,
        failures=0,
        error=None,
        run="",
        version=0,
        sent_at=None,
        sent=0,
        began_at=began_at if queue.sink.since is None else queue.sink.since,
        filled_from=queue.sink.since,
        filled_after=None,
        filled=0,
    )


def _comes_after(columns: list[sa.Column[Any]], key: RowKey) -> sa.ColumnElement[bool]:
    """Return the condition that a key comes after another, in the form for which both databases use an index."""
    return sa.tuple_(*columns) > sa.tuple_(*(sa.literal(value) for value in key))


async def _of_repository(tx: Transaction, export: Export, repository_id: int) -> sa.ColumnElement[bool]:
    names = sorted(await repositories.read_names_of_ids(tx, {repository_id}))
    conditions = []
    for name in export.repositories:
        column = export.table.c[name]
        is_text = isinstance(column.type, sa.String)
        conditions.append(sa.func.lower(column).in_(names) if is_text else column == repository_id)
    return sa.or_(sa.false(), *conditions)
