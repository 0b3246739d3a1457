"""A cache of sums over days, by backend: each entry is valid until a row behind it changes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aiohttp import web

from bot.oot.statistics.days import DAY
from bot.oot.statistics.store import rollup

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.statistics.days import Day
    from bot.oot.statistics.store.rollup import Fingerprints

T = TypeVar("T")
MOST = 24  # kinds of sums in the cache


@dataclass(frozen=True, kw_only=True)
class _Entry(Generic[T]):
    """Sums over a span of days, and the state of the rows they were made from."""

    fingerprint: object  # of all backends
    fingerprints: Fingerprints  # of each
    changing: set[str]  # backends whose rows changed since they were counted: good for one request
    sums: dict[str, T]


class DaySumsCache:
    """Sums by backend; one is made again once any of the rows behind it has changed."""

    def __init__(self) -> None:
        self._of_days: OrderedDict[Hashable, _Entry[Any]] = OrderedDict()
        self._since: OrderedDict[Hashable, dict[str, tuple[object, int, Any]]] = OrderedDict()
        self._combined: OrderedDict[Hashable, dict[str, tuple[tuple[object, ...], Any]]] = OrderedDict()

    async def of_days(
        self, tx: Transaction, kind: Hashable, span: tuple[int, int], make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return the sums over a span of days (first, last) by backend (case folded).

        `kind` distinguishes sums over the same days: it holds everything that `make` depends on.
        """
        first, last = span
        changing = {backend for _, backend in await rollup.pending(tx, first, last=last)}
        fingerprint = await rollup.fingerprint(tx, first, last)
        known: _Entry[T] | None = self._of_days.get((kind, span))
        same = known is not None and known.fingerprint == fingerprint
        if known is None or not same or changing or known.changing:
            now = known.fingerprints if known and same else await rollup.fingerprints(tx, first, last)
            sums = _unchanged(known, now, changing) if known else {}
            changed = (now.keys() | changing) - sums.keys()
            parts: dict[str, list[Day]] = {key: [] for key in changed}
            for one in await rollup.read_days(tx, first, last=last, backends=None if not sums else changed):
                parts.setdefault(one.backend_key, []).append(one)
            for key, part in parts.items():
                sums[key] = make(part)
            known = _Entry(fingerprint=fingerprint, fingerprints=now, changing=changing, sums=sums)
        _store(self._of_days, (kind, span), known)
        return known.sums

    async def since(
        self, tx: Transaction, kind: Hashable, at: int, make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return the sums since a moment; also counted again once a row has become older than that."""
        first, last = at // DAY, tx.now // DAY
        changing = {backend for _, backend in await rollup.pending(tx, first, last=last)}
        now: rollup.Fingerprints = dict.fromkeys(changing) | await rollup.fingerprints(tx, first, last)
        known: dict[str, tuple[object, int, T]] = self._since.get(kind, {})
        sums = {
            key: known[key]
            for key, fingerprint in now.items()
            if key not in changing and key in known and known[key][0] == fingerprint and known[key][1] >= at
        }
        changed = now.keys() - sums.keys()
        for key, one in (await rollup.since(tx, at, changed) if changed else {}).items():
            sums[key] = (None if key in changing else now[key], one.oldest, make(one.days))
        _store(self._since, kind, sums)
        return {key: one for key, (_, _, one) in sums.items()}

    def combined(
        self,
        kind: Hashable,
        parts: Mapping[str, tuple[object, ...]],
        make: Callable[..., T],
        *,
        valid: Hashable,
    ) -> dict[str, T]:
        """Return what `make` makes of each backend's parts, unless these are the same as last time.

        `valid` stands for whatever else `make` depends on: when it changes, everything is made again.
        """
        known = self._combined.get(kind, {})
        found = {
            key: known[key]
            if key in known and known[key][0] == (valid, mine)
            else ((valid, mine), make(*mine))
            for key, mine in parts.items()
        }
        _store(self._combined, kind, found)
        return {key: cast("T", one) for key, (_, one) in found.items()}


DAY_SUMS: web.AppKey[DaySumsCache] = web.AppKey("day_sums", DaySumsCache)


def _unchanged(known: _Entry[T], now: Fingerprints, changing: set[str]) -> dict[str, T]:
    """Return the sums of backends none of whose rows has changed."""
    return {
        key: known.sums[key]
        for key, fingerprint in now.items()
        if key not in changing | known.changing and known.fingerprints.get(key) == fingerprint
    }


def _store(entries: OrderedDict[Hashable, Any], kind: Hashable, found: object) -> None:
    entries[kind] = found
    entries.move_to_end(kind)
    while len(entries) > MOST:
        entries.popitem(last=False)
