"""Who may use the parser children next: each repository in turn, and none more than its share of their time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import NotYet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.core.clock import Clock

BURST = 600.0  # seconds of parsing that a repository may use at once
SHARE = 0.5  # of the children's time, after that
FILE = 2.0  # seconds that a file is expected to take
OWNERS_MOST = 10_000


class Turns:
    """Gives out turns: while several owners wait, each gets one after the other, however many files it has."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._free += 1
            self._pass_on()

    async def _wait(self, owner: str) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted in the same moment
                self._free += 1
                self._pass_on()
            elif granted in (waiting := self._waiting.get(owner, deque())):
                waiting.remove(granted)
                if not waiting:
                    del self._waiting[owner]
            raise

    def _pass_on(self) -> None:
        while self._free and self._waiting:
            owner, waiting = self._waiting.popitem(last=False)
            granted = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting  # behind the others
            self._free -= 1
            granted.set_result(None)


@dataclass(kw_only=True)
class _Account:
    left: float  # seconds
    at: float  # seconds, when that was computed
    next_at: float = 0.0  # when the next task that was put off comes again


class Shares:
    """How much of the children's time each repository has left: hostile files may take two minutes each."""

    def __init__(self, clock: Clock, workers: int) -> None:
        self._clock = clock
        self._rate = SHARE * workers
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def check(self, owner: str) -> None:
        """Raise NotYet where a repository has used up its share: its tasks come again one after the other."""
        account, now = self._account(owner), self._clock.now() / 1000
        if account.left > 0:
            return
        soonest = now + (FILE - account.left) / self._rate
        account.next_at = max(account.next_at + FILE / self._rate, soonest)
        raise NotYet("others' files are read first: its own took long", after=account.next_at - now)

    def spend(self, owner: str, seconds: float) -> None:
        """Count what reading a file took."""
        self._account(owner).left -= seconds

    def _account(self, owner: str) -> _Account:
        now = self._clock.now() / 1000
        account = self._accounts.setdefault(owner, _Account(left=BURST, at=now))
        account.left = min(account.left + max(now - account.at, 0) * self._rate, BURST)
        account.at = now
        self._accounts.move_to_end(owner)
        if len(self._accounts) > OWNERS_MOST:
            self._accounts.popitem(last=False)
        return account
