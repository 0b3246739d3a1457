"""Searching logs: a few at once, each caller a few a minute, each search for a short time."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from cachetools import TTLCache

from bot.ci.collect.blob_store import BlobMissing, copy_to
from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.parse.contract import Request
from bot.ci.collect.parser_pool import ParserPool
from bot.ci.collect.workspace import WORKSPACE
from bot.ci.logs.parse.options import Searched, SearchOptions
from bot.core.errors import Rejected
from bot.core.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bot.ci.logs.store.search_rows import SearchableRow
    from bot.context import Context

AT_ONCE = 2
WINDOW, A_MINUTE = 60, 10  # seconds; searches of one address in them
ADDRESSES_MOST = 10_000
PARSER = "bot.ci.logs.parse.search_child:search_stored"
LOGS = 60  # of one search
HITS_OF_JOB, HITS = 20, 200
BUDGET = 2.0  # seconds of the child's processor time
WALL = 10.0  # seconds, after which no further log is begun, and for one log
MIB = 1024 * 1024
BYTES = 1024 * MIB  # of plain logs, after which no further one is begun
_SEARCHED = msgspec.msgpack.Decoder(Searched)


@dataclass(frozen=True, kw_only=True)
class FoundIn:
    """What was found in one log."""

    log: SearchableRow
    searched: Searched | None  # None: it could not be searched
    problem: str = ""


class Searches:
    """The children that search, and who has searched how often."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.children = ParserPool(AT_ONCE, wall=WALL)
        self._running = 0
        self._times: TTLCache[str, deque[float]] = TTLCache(ADDRESSES_MOST, WINDOW, timer=self._now)

    @contextlib.contextmanager
    def admitted(self, address: str) -> Iterator[None]:
        """Hold one of the places for a search; raises Rejected 429."""
        now = self._now()
        times = self._times.get(address) or deque(maxlen=A_MINUTE)
        if len(times) == A_MINUTE and times[0] > now - WINDOW:
            raise _too_many(f"{A_MINUTE} searches a minute", max(int(times[0] + WINDOW - now), 1))
        if self._running >= AT_ONCE:
            raise _too_many(f"{AT_ONCE} searches at once", 2)
        times.append(now)
        self._times[address] = times
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def close(self) -> None:
        """End the children."""
        await self.children.close()

    def _now(self) -> float:
        return self._clock.now() / 1000


SEARCHES: Resource[Searches] = Resource("log_searches", Searches)


async def search_logs(context: Context, logs: Sequence[SearchableRow], pattern: str) -> list[FoundIn]:
    """Search logs in order, as many as the limits allow; at least one. Raises Rejected for a wrong pattern."""
    found: list[FoundIn] = []
    used, hits, size, began = 0.0, 0, 0, time.monotonic()
    async with context.resource(WORKSPACE).folder() as folder:
        for log in logs[:LOGS]:
            one = await _search_one(context, log, SearchOptions(pattern=pattern, most=HITS_OF_JOB), folder)
            found.append(one)
            size += log["bytes"]
            if one.searched:
                used, hits = used + one.searched.seconds, hits + len(one.searched.hits)
            if used >= BUDGET or size >= BYTES or hits > HITS - HITS_OF_JOB:
                break
            if time.monotonic() - began >= WALL:
                break
    return found


async def _search_one(context: Context, log: SearchableRow, options: SearchOptions, folder: Path) -> FoundIn:
    path, answer = folder / "log", folder / "answer"
    try:
        await copy_to(context.resource(BLOBS), log["blob"], path)
        reply = await context.resource(SEARCHES).children.parse(
            Request(
                parser=PARSER,
                path=str(path.absolute()),
                blob=str((folder / "blob").absolute()),
                answer=str(answer.absolute()),
                options=msgspec.to_builtins(options),
                most_written=MIB,
            )
        )
        if reply.state == "refused":
            raise Rejected(400, "invalid_parameter", reply.reason)
        if reply.state != "parsed":
            return FoundIn(log=log, searched=None, problem=reply.reason)
        return FoundIn(log=log, searched=_SEARCHED.decode(answer.read_bytes()))
    except BlobMissing:
        return FoundIn(log=log, searched=None, problem="the log has been deleted")
    finally:
        path.unlink(missing_ok=True)


def _too_many(limit: str, wait: int) -> Rejected:
    detail = f"{limit} are answered: come back in {wait} s"
    return Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})
