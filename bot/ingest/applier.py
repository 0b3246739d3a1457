"""The applier: handles deliveries as they arrive and as they are due, a batch in one transaction.

Where one of a batch fails, each is tried alone, so that it does not hold up the others. What a handler raises is
logged and kept with the delivery, which is tried again later; one that cannot be read, or has failed too often, is
parked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from bot.core import metrics, traces
from bot.core.errors import StoreUnavailable
from bot.core.json_fields import Unreadable, clean
from bot.ingest import arrivals, inbox, pinned
from bot.ingest.compression import LARGE
from bot.ingest.delivery import Delivery
from bot.ingest.watched import read_payload
from bot.queue import tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gidgethub.routing import Router

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.tables import DeliveryRow, ReceivedRow

BATCH = 100  # deliveries applied in one transaction
MOST_ATTEMPTS = 5  # of a delivery, then it is parked
NOT_STORABLE = "the database cannot store why; see the log"
UNHANDLED = frozenset({"parked", "ignored"})  # handled once a replay can read them

log = structlog.get_logger("bot.ingest.applier")


class Applier:
    """Handles deliveries: the records they show, and the tasks they cause."""

    def __init__(self, context: Context, router: Router) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._router = router
        self._events = context.events

    async def apply_arrived(self) -> int:
        """Apply a batch of what has arrived on SQLite; returns how many were taken. Raises StoreUnavailable."""
        async with self._context.intake.arrived_next(BATCH) as rows:
            if not rows:
                return 0
            stored = await inbox.all_as_stored(rows)
            try:
                async with self._store.transaction() as tx:
                    taken = await arrivals.store(tx, rows, stored, self._events)
                    tx.note_changed("delivery", taken)
                    for one in taken:
                        if one["event"] in self._events:
                            await self._handle(tx, one)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one bad delivery: the inbox tries each alone
                log.debug("batch failed", error=repr(error), deliveries=len(rows))
                async with self._store.transaction() as tx:
                    await arrivals.store_to_claim(tx, stored)
                return 0
        metrics.count_applied(taken, events=self._events, now=self._clock.now())
        return len(rows)

    async def apply_due(self) -> int:
        """Apply a batch of what is due in the inbox; returns how many were taken. Raises StoreUnavailable."""
        taken: list[DeliveryRow] = []
        try:
            async with self._store.transaction() as tx:
                taken = await inbox.claim(tx, limit=BATCH)
                await self._handle_all(tx, taken)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad delivery: find it by trying each alone
            log.debug("batch failed", error=repr(error), deliveries=len(taken))
            return sum([await self._apply_alone(one) for one in taken])
        metrics.count_applied(taken, events=self._events, now=self._clock.now())
        return len(taken)

    async def replay(self, batch: Sequence[DeliveryRow]) -> dict[str, str]:
        """Rebuild the records of deliveries and cause nothing else; returns GUID -> error of those that failed.

        Parked and ignored ones count as handled then; stored ones stay to be handled.
        """
        known = [one for one in batch if one["event"] in self._events]
        try:
            async with self._store.transaction() as tx:
                tx.replaying = True
                for one in known:
                    await self._handle(tx, one)
                await inbox.mark(tx, [one for one in known if one["state"] in UNHANDLED], "handled")
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad delivery: find it by trying each alone
            if len(known) == 1:
                return {known[0]["guid"]: f"{type(error).__name__}: {error}"[:2000]}
            alone = [await self.replay([one]) for one in known]
            return {guid: reason for failed in alone for guid, reason in failed.items()}
        return {}

    async def _apply_alone(self, one: DeliveryRow) -> bool:
        """Apply one; returns False where it is due still, since not even its failure could be recorded."""
        try:
            async with self._store.transaction() as tx:
                await self._handle_all(tx, await inbox.claim(tx, limit=1, only=one["id"]))
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - kept with the delivery, shown, retried
            return await self._record_failure(one, error)
        metrics.count_applied([one], events=self._events, now=self._clock.now())
        return True

    async def _handle_all(self, tx: Transaction, taken: Sequence[DeliveryRow]) -> None:
        known = [one for one in taken if one["event"] in self._events]
        for one in known:
            await self._handle(tx, one)
        tx.note_changed("delivery", taken)
        await inbox.mark(tx, known, "handled")
        await inbox.mark(tx, [one for one in taken if one["event"] not in self._events], "ignored")

    async def _handle(self, tx: Transaction, one: ReceivedRow) -> None:
        data = (
            await asyncio.to_thread(self._payload, one)
            if inbox.body_size(one) > LARGE
            else self._payload(one)
        )
        tx.cause = one["guid"]
        event = Delivery(data, event=one["event"], delivery_id=one["guid"], received_at=one["received_at"])
        bound = structlog.contextvars.bind_contextvars(delivery=one["guid"])
        try:
            with traces.span(f"handle {one['event']}", cause=one["guid"]):
                await pinned.require(tx, self._context.settings, data)
                await self._router.dispatch(event, tx)
        except RecursionError as error:  # what can be decoded may still be too deep to encode
            raise Unreadable("the body is nested too deeply") from error
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    def _payload(self, one: ReceivedRow) -> dict[str, Any]:
        return read_payload(self._context.settings, inbox.read_body(one))

    async def _record_failure(self, one: DeliveryRow, error: Exception) -> bool:
        """Postpone or park a delivery with the reason, or without where that cannot be stored; returns whether it was.

        Where neither can be, the other deliveries go on, and /readyz says so.
        """
        hopeless = isinstance(error, Unreadable) or one["attempts"] + 1 >= MOST_ATTEMPTS
        reason = clean(f"{type(error).__name__}: {error}"[:2000])
        log.warning(
            "delivery failed", delivery=one["guid"], github_event=one["event"], error=reason, parked=hopeless
        )
        for kept in (reason, NOT_STORABLE):
            try:
                await self._postpone(one, kept, hopeless=hopeless)
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("a failure cannot be recorded", delivery=one["guid"])
            else:
                return True
        detail = f"that delivery {one['guid']} failed cannot be recorded; see the log"
        self._store.note_outcome(StoreUnavailable(detail))
        return False

    async def _postpone(self, one: DeliveryRow, reason: str, *, hopeless: bool) -> None:
        async with self._store.transaction() as tx:
            if hopeless:
                tx.note_changed("delivery", [one])
                metrics.APPLIED.labels("parked").inc(await inbox.park(tx, one, reason))
            else:
                due_at = tx.now + tasks.backoff(one["attempts"] + 1)
                await inbox.postpone(tx, one, due_at=due_at, error=reason)
