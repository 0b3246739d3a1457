"""A cache of what is made of lists: an entry is good as long as its key, which names the lists by their ETags."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Hashable

    from bot.web.page_cache import CachedPage

MOST_BYTES = 16 * 1024 * 1024
MOST_OF_ONE = 4 * 1024 * 1024  # bytes: uncompressed, PyTorch's longest list has over ten megabytes
MOST = 100  # entries
T = TypeVar("T")


class BytesCache(Generic[T]):
    """The entries used last, up to a number of bytes in all; used by the render thread alone."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def find(self, key: Hashable) -> T | None:
        """Return an entry, if there is one."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def store(self, key: Hashable, value: T, size: int) -> None:
        """Add an entry of that many bytes, unless it is too large; those used least recently are dropped."""
        if size > MOST_OF_ONE:
            return
        _, before = self._entries.pop(key, (None, 0))
        self._entries[key] = (value, size)
        self._bytes += size - before
        while self._bytes > MOST_BYTES or len(self._entries) > MOST:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._bytes -= dropped


SENT_LISTS: web.AppKey[BytesCache[CachedPage]] = web.AppKey("sent_lists", BytesCache)
