"""Senders of deliveries, GitHub and others: where each delivers, what of it is stored, and what it is answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from bot.core import metrics
from bot.core.errors import Rejected
from bot.core.feature import load_each
from bot.web.answers import Answer, Yes
from bot.web.app_keys import CONTEXT
from bot.web.bodies import LARGE, SMALL, read_body
from bot.web.refusal_limiter import IGNORED_LIMITER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.typedefs import Handler

    from bot.context import Context
    from bot.core.feature import Features
    from bot.ingest.inbox import Incoming


class Stored(Answer, frozen=True, kw_only=True):
    """Stored, or stored already (`duplicate`)"""

    delivery: str
    duplicate: Yes | UnsetType = UNSET


class Taken(Stored, frozen=True, kw_only=True):
    """Stored, or stored already (`duplicate`); `ignored` says why nothing follows from it"""

    ignored: str | UnsetType = UNSET


def pass_over(_what: object) -> None:
    """Do nothing: what is counted of every request is enough."""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Who delivers at an address of its own, which ends in `/webhooks`."""

    path: str
    limit: int  # bytes of a body
    # (headers, by names in lower case or ignoring their case, body, context) -> what is stored; raises Rejected
    admit: Callable[[Mapping[str, str], bytes, Context], Incoming]
    taken: Callable[[Incoming], None] = pass_over  # counts a delivery that was stored, or had been
    refused: Callable[[Rejected], None] = pass_over


def all_senders(features: Features) -> list[Sender]:
    """Return the senders of all features."""
    groups: Iterable[tuple[Sender, ...]] = load_each(features, "senders")
    return [one for group in groups for one in group]


def make_receiver(sender: Sender) -> Handler:
    """Return the request handler of a sender: verifies, stores, acknowledges."""

    async def receive(request: web.Request) -> web.Response:
        context = request.app[CONTEXT]
        metrics.READ_BY_AIOHTTP.inc()
        body = await read_body(request, limit=sender.limit)
        try:
            if len(body) > LARGE:
                incoming = await asyncio.to_thread(sender.admit, request.headers, body, context)
            else:
                incoming = sender.admit(request.headers, body, context)
            if "ignored" in incoming:
                request.app[IGNORED_LIMITER].ignored(request, incoming["ignored"])
        except Rejected as refusal:
            sender.refused(refusal)
            raise
        new = await context.intake.put(incoming)
        body_of_answer = acknowledge(sender, incoming, new=new)
        answer = web.Response(body=body_of_answer, status=202, content_type="application/json")
        if len(body) > SMALL:  # the next delivery can take the fast path only on another connection
            answer.force_close()
        return answer

    return receive


def acknowledge(sender: Sender, incoming: Incoming, *, new: bool) -> bytes:
    """Count a delivery that is stored, and return the body of its answer."""
    sender.taken(incoming)
    (metrics.STORED if new else metrics.DUPLICATES).inc()
    duplicate: Yes | UnsetType = UNSET if new else True
    if (why := incoming.get("ignored")) is not None:
        return msgspec.json.encode(Taken(delivery=incoming["guid"], duplicate=duplicate, ignored=why))
    return msgspec.json.encode(Stored(delivery=incoming["guid"], duplicate=duplicate))
