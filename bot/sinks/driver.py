"""What the driver of a kind of sink does, and how it fails; `bot.sinks.sending` does the rest.

Layouts, and what `Shape.make` of an export is in each:

- `raw` and `upstream`, of objects: (export, row) -> the `bot.db.exports.StoredObject`s it becomes
- `dynamodb`: what its driver makes items from
- `clickhouse.upstream` and `clickhouse.ootbot`: what its driver makes rows and tables from

A driver gets current and deleted rows in no order, perhaps more than once: what it writes last must be what is true.
It has no state but its connections.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bot.core.errors import OotbotError, RetryLater
from bot.core.masking import MASK, mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.exports import Export, ExportedRow, RowKey
    from bot.sinks.settings import SinkSettings

_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_SIGNED = re.compile(
    r"(?i)\b(x-amz-[a-z-]*(?:signature|credential|token)|awsaccesskeyid|signature|sig|se|sp|sv|token|password|secret)="
    r"[^&\s\"'<>]+"
)


class Outgoing(NamedTuple):
    """What is to be sent for one key."""

    key: RowKey
    row: ExportedRow | None  # None: nothing is known of it any more
    deleted: bool = False  # the copy is to be deleted; `row` may say where it is
    version: int = 0  # epoch milliseconds; never less than that of what was sent of the same key before


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What is sent of one export at once."""

    export: Export
    make: Any  # what `Shape.make` of the sink's layout names
    items: Sequence[Outgoing]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A row that the sink refuses, whatever is sent with it."""

    key: RowKey
    reason: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row that differs in the sink."""

    key: RowKey
    words: str  # missing, or what differs


class Driver(Protocol):
    """Writes to one sink."""

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; returns the rows that were refused; all others are stored durably.

        Raises BatchRefused if the sink does not say which row it refuses: the batch is halved and sent again. Raises
        SinkAway if a later attempt may succeed, Stopped if somebody must do something first.
        """
        ...

    def checker(self, batch: Batch) -> Checker:
        """Return what compares an export with what the sink holds; `batch` is empty."""
        ...

    async def check_access(self) -> None:
        """Raise SinkAway or Stopped unless the sink can be written, for `ootbot doctor`."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class Checker(Protocol):
    """Compares an export with what the sink holds."""

    async def missing(self, items: Sequence[Outgoing]) -> set[RowKey]:
        """Return the keys that the sink has no copy of."""
        ...

    async def differing(self, items: Sequence[Outgoing]) -> Sequence[Difference]:
        """Compare the content of a few rows."""
        ...


class OpenDriver(Protocol):
    """The function that `bot.sinks.settings` names: opens a sink, reachable or not."""

    def __call__(self, settings: SinkSettings) -> Driver:
        """Return the driver of a sink."""
        ...


class SinkAway(RetryLater):
    """The sink cannot be used now; changes wait."""


class Stopped(OotbotError):
    """This export cannot be written until somebody fixes the sink: a table or column is missing."""


class BatchRefused(OotbotError):
    """The sink refuses some row of a batch without saying which."""


class SinkForbidden(SinkAway):
    """The sink refuses our credentials: only people can help, so it is asked every five minutes."""

    def __init__(self, message: str) -> None:
        super().__init__(message, after=300)


def mask_credentials(text: str) -> str:
    """Return the first line of an error of another store without logins, signatures and secrets."""
    line = " ".join(text.partition("\n\n")[0].split())
    return mask(_SIGNED.sub(rf"\1={MASK}", _LOGIN.sub(f"{MASK}@", line)))
