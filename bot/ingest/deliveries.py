"""Handling of deliveries: what handlers get, and the loop that hands them deliveries in batches."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import sqlalchemy as sa
import structlog
from gidgethub.sansio import Event

from bot.core import metrics, traces
from bot.core.errors import StoreUnavailable
from bot.core.json_fields import Kind, Unreadable, as_text, clean, read_member
from bot.db.statements import Statement
from bot.db.transaction import Slot
from bot.ingest import inbox, record_store, repositories
from bot.ingest.inbox import COLUMNS, LARGE_BODY, Incoming
from bot.ingest.intake import GUID, INSERT, REPLACE, STATE, is_ours
from bot.ingest.repositories import read_payload
from bot.ingest.tables import REPOSITORY, ReceivedRow, delivery, from_payload
from bot.queue import tasks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gidgethub.routing import Router

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.spool import DeliveryValues
    from bot.ingest.tables import DeliveryRow, RecordType

V = TypeVar("V")
# repositories by id: what this transaction last recorded of each, and when that was received
RECORDED: Slot[dict[str, tuple[dict[str, Any], int]]] = Slot("recorded repositories", dict)
GUID_CONTENT = {  # fields in which two answers about one object agree when nothing has changed
    "workflow_run": "{id} {run_attempt} {status} {updated_at}",
    "workflow_job": "{id} {status} {conclusion} {started_at} {completed_at}",
    "check_run": "{id} {status} {conclusion} {started_at} {completed_at}",
}
NAMES = list(COLUMNS)
EVENT, REPO, RECEIVED_AT, BODY = (NAMES.index(name) for name in ("event", "repo", "received_at", "body"))
KNOWN_GUIDS = Statement(
    sa.select(delivery.c.guid).where(
        delivery.c.guid.in_(sa.select(sa.func.json_each(sa.bindparam("guids")).table_valued("value").c.value))
    )
)
INSERT_MARKED = (
    f"INSERT INTO delivery ({', '.join(NAMES)}, attempts) VALUES ({', '.join('?' * len(NAMES))}, ?)"  # noqa: S608 - our names
)
BATCH = 100  # deliveries applied in one transaction
MOST_ATTEMPTS = 5  # of a delivery, then it is parked
NOT_STORABLE = "the database cannot store why; see the log"
UNHANDLED = frozenset({"parked", "ignored"})  # handled once a replay can read them

log = structlog.get_logger("bot.ingest.deliveries")


class Delivery(Event):
    """A delivery: gidgethub's event (`data`, `event`, `delivery_id`) with what our handlers need."""

    def __init__(
        self,
        data: dict[str, Any],
        *,
        event: str,
        delivery_id: str,
        received_at: int,
        admitted_for: str | None = None,
    ) -> None:
        super().__init__(data, event=event, delivery_id=delivery_id)
        self.received_at = received_at  # epoch milliseconds
        self.admitted_for = admitted_for  # the repository that its sender may speak of, if it is not GitHub

    @property
    def action(self) -> str:
        """The body's action, empty when it has none."""
        return as_text(self.data.get("action")) or ""

    @property
    def repo(self) -> str:
        """The full name of its repository, empty when there is none."""
        repository = self.data.get("repository")
        name = repository.get("full_name") if isinstance(repository, dict) else None
        return as_text(name) or ""


def is_from_github(event: str) -> bool:
    """Whether an event is one of GitHub's, by its name: those of other senders have a dot in it."""
    return "." not in event


def record(tx: Transaction, event: Delivery, kind: RecordType[V], *, deleted: bool = False) -> V:
    """Merge one record of the delivery into its table and return the values that were read.

    The delivery's repository is recorded too: its visibility decides who may see the record.
    """
    row = from_payload(
        kind, event.data, guid=event.delivery_id, received_at=event.received_at, deleted=deleted
    )
    record_store.add_record(tx, row)
    if kind is not REPOSITORY:
        record_repository(tx, event, event.data.get("repository"))
    return cast("V", row.values)


def record_repository(tx: Transaction, event: Delivery, repository: object) -> None:
    """Record a repository that a delivery mentions; repeating it within a transaction costs nothing.

    One without its visibility is ignored. It comes with any delivery, and is not tied to the first of them.
    """
    if not isinstance(repository, dict) or "id" not in repository or "private" not in repository:
        return
    key = str(repository["id"])
    recorded = tx.slot(RECORDED)
    last, at = recorded.get(key, ({}, 0))
    if last == repository and at <= event.received_at:
        return
    recorded[key] = (repository, event.received_at)
    record_store.add_record(
        tx,
        from_payload(REPOSITORY, {"repository": repository}, guid="", received_at=event.received_at),
    )


def delivery_of_answer(event: str, subject: dict[str, Any], repository: dict[str, Any]) -> Incoming:
    """Turn an API answer about a run, job or check run into the delivery of that event."""
    body = {"action": subject["status"], event: subject, "repository": repository}
    content = f"{event} {repository['id']} {GUID_CONTENT[event].format_map(subject)}"
    return to_incoming(content_guid(content), event, body, source="api")


def content_guid(content: str) -> str:
    """Make a GUID from the content, so that the same change is stored once."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, content))


def to_incoming(
    guid: str,
    event: str,
    payload: dict[str, Any],
    *,
    source: str,
    app_id: int | None = None,
    headers: str | None = None,
) -> Incoming:
    """Turn a body that did not arrive as a webhook into the delivery it would have been."""
    return Incoming(
        guid=guid,
        event=event,
        source=source,
        action=read_member(payload, ("action",), Kind.TEXT),
        repo=read_member(payload, ("repository", "full_name"), Kind.TEXT),
        repository_id=read_member(payload, ("repository", "id"), Kind.INT),
        installation_id=read_member(payload, ("installation", "id"), Kind.INT),
        app_id=app_id,
        headers=headers,
        body=msgspec.json.encode(payload),
    )


async def store_arrivals(
    tx: Transaction, rows: Sequence[DeliveryValues], stored: Sequence[DeliveryValues], events: Collection[str]
) -> list[ReceivedRow]:
    """Store deliveries as handled, or as ignored if their event has no handler; returns both, to be handled.

    `stored` are their rows with compressed bodies.
    Those that are in the inbox already stay as they are. Ours in place of a copy for another App is left to `claim`.
    """
    guids = msgspec.json.encode([row[GUID] for row in rows]).decode()
    known = set((await tx.run(KNOWN_GUIDS, {"guids": guids})).scalars())
    marked, repeated, taken = [], [], []
    for row, compressed in zip(rows, stored, strict=True):
        if row[GUID] in known:
            repeated.append(compressed)
            continue
        known.add(row[GUID])
        ours = is_ours(row)
        state = row[STATE] if not ours else "handled" if row[EVENT] in events else "ignored"
        marked.append((*compressed[:STATE], state, *compressed[STATE + 1 :], int(ours)))
        if ours:
            taken.append(
                ReceivedRow(
                    guid=row[GUID],
                    event=row[EVENT],
                    repo=row[REPO],
                    received_at=row[RECEIVED_AT],
                    codec=None,
                    body=row[BODY],
                )
            )
    if marked:
        await tx.conn.exec_driver_sql(INSERT_MARKED, marked)
    await _replace(tx, repeated)
    return taken


async def store_arrivals_to_claim(tx: Transaction, stored: Sequence[DeliveryValues]) -> None:
    """Store deliveries as `stored`: at least one of them could not be handled, so each is tried alone."""
    await tx.conn.exec_driver_sql(INSERT, list(stored))
    await _replace(tx, stored)


class Applier:
    """Handles deliveries: the records they show, and the tasks they cause."""

    def __init__(self, context: Context, router: Router) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._router = router
        self._events = context.events

    async def apply_arrived(self) -> int:
        """Apply a batch of newly arrived deliveries on SQLite; returns how many were taken. Raises StoreUnavailable."""
        async with self._context.intake.arrived_next(BATCH) as rows:
            if not rows:
                return 0
            stored = await inbox.to_stored_rows(rows)
            try:
                async with self._store.transaction() as tx:
                    taken = await store_arrivals(tx, rows, stored, self._events)
                    tx.note_changed("delivery", taken)
                    for row in taken:
                        if row["event"] in self._events:
                            await self._handle(tx, row)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one bad delivery: the inbox tries each alone
                log.debug("batch failed", error=repr(error), deliveries=len(rows))
                async with self._store.transaction() as tx:
                    await store_arrivals_to_claim(tx, stored)
                return 0
        metrics.count_applied(taken, events=self._events, now=self._clock.now())
        return len(rows)

    async def apply_due(self) -> int:
        """Apply a batch of the deliveries that are due; returns how many were taken. Raises StoreUnavailable."""
        taken: list[DeliveryRow] = []
        try:
            async with self._store.transaction() as tx:
                taken = await inbox.claim_due(tx, limit=BATCH)
                await self._handle_all(tx, taken)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad delivery: find it by trying each alone
            log.debug("batch failed", error=repr(error), deliveries=len(taken))
            return sum([await self._apply_alone(row) for row in taken])
        metrics.count_applied(taken, events=self._events, now=self._clock.now())
        return len(taken)

    async def replay(self, batch: Sequence[DeliveryRow]) -> dict[str, str]:
        """Rebuild the records of deliveries and cause nothing else; returns GUID -> error of those that failed.

        Parked and ignored ones count as handled then; stored ones stay to be handled.
        """
        known = [row for row in batch if row["event"] in self._events]
        try:
            async with self._store.transaction() as tx:
                tx.replaying = True
                for row in known:
                    await self._handle(tx, row)
                await inbox.settle_deliveries(
                    tx, [row for row in known if row["state"] in UNHANDLED], "handled"
                )
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad delivery: find it by trying each alone
            if len(known) == 1:
                return {known[0]["guid"]: f"{type(error).__name__}: {error}"[:2000]}
            alone = [await self.replay([row]) for row in known]
            return {guid: reason for failed in alone for guid, reason in failed.items()}
        return {}

    async def _apply_alone(self, row: DeliveryRow) -> bool:
        """Apply one delivery; returns False if it is still due because not even its failure could be recorded."""
        try:
            async with self._store.transaction() as tx:
                await self._handle_all(tx, await inbox.claim_due(tx, limit=1, only=row["id"]))
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - kept with the delivery, shown, retried
            return await self._record_failure(row, error)
        metrics.count_applied([row], events=self._events, now=self._clock.now())
        return True

    async def _handle_all(self, tx: Transaction, taken: Sequence[DeliveryRow]) -> None:
        known = [row for row in taken if row["event"] in self._events]
        for row in known:
            await self._handle(tx, row)
        tx.note_changed("delivery", taken)
        await inbox.settle_deliveries(tx, known, "handled")
        await inbox.settle_deliveries(
            tx, [row for row in taken if row["event"] not in self._events], "ignored"
        )

    async def _handle(self, tx: Transaction, row: ReceivedRow) -> None:
        data = (
            await asyncio.to_thread(self._payload, row)
            if inbox.body_size(row) > LARGE_BODY
            else self._payload(row)
        )
        tx.cause = row["guid"]
        github = is_from_github(row["event"])
        event = Delivery(
            data,
            event=row["event"],
            delivery_id=row["guid"],
            received_at=row["received_at"],
            admitted_for=None if github else row.get("repo"),
        )
        bound = structlog.contextvars.bind_contextvars(delivery=row["guid"])
        try:
            with traces.span(f"handle {row['event']}", cause=row["guid"]):
                if github:  # others name no repository, and nothing they say pins one
                    await repositories.require_same_repository(tx, self._context.settings, data)
                await self._router.dispatch(event, tx)
        except RecursionError as error:  # what can be decoded may still be too deep to encode
            raise Unreadable("the body is nested too deeply") from error
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    def _payload(self, row: ReceivedRow) -> dict[str, Any]:
        return read_payload(self._context.settings, inbox.read_body(row))

    async def _record_failure(self, row: DeliveryRow, error: Exception) -> bool:
        """Postpone or park a delivery with the reason, or without it if it cannot be stored; returns success.

        Where neither can be, the other deliveries go on, and /readyz says so.
        """
        hopeless = isinstance(error, Unreadable) or row["attempts"] + 1 >= MOST_ATTEMPTS
        reason = clean(f"{type(error).__name__}: {error}"[:2000])
        log.warning(
            "delivery failed",
            delivery=row["guid"],
            github_event=row["event"],
            error=reason,
            parked=hopeless,
        )
        for kept in (reason, NOT_STORABLE):
            try:
                await self._postpone(row, kept, hopeless=hopeless)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("a failure cannot be recorded", delivery=row["guid"])
            else:
                return True
        detail = f"that delivery {row['guid']} failed cannot be recorded; see the log"
        self._store.note_outcome(StoreUnavailable(detail))
        return False

    async def _postpone(self, row: DeliveryRow, reason: str, *, hopeless: bool) -> None:
        async with self._store.transaction() as tx:
            if hopeless:
                tx.note_changed("delivery", [row])
                metrics.APPLIED.labels("parked").inc(await inbox.park_delivery(tx, row, reason))
            else:
                due_at = tx.now + tasks.backoff(row["attempts"] + 1)
                await inbox.postpone_delivery(tx, row, due_at=due_at, error=reason)


async def _replace(tx: Transaction, rows: Sequence[DeliveryValues]) -> None:
    if ours := [row for row in rows if is_ours(row)]:
        await tx.conn.exec_driver_sql(REPLACE, ours)
