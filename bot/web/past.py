"""What do days amount to, without adding them up for every page? Sums by backend, good while no row of it changes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aiohttp import web

from bot.domain.days import DAY
from bot.store import rollup

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from bot.domain.days import Day
    from bot.store import Transaction
    from bot.store.rollup import Marks

T = TypeVar("T")
MOST = 24  # kinds of sums kept: what is made, of which days


@dataclass(frozen=True, kw_only=True)
class _Kept(Generic[T]):
    """What was made of a span of days, and which state of its rows it was made from."""

    mark: object  # of all of them
    marks: Marks  # of each backend
    found: dict[str, T]


class Past:
    """Sums by backend; one is made again once any of the rows behind it has changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept[Any]] = OrderedDict()
        self._since: OrderedDict[Hashable, dict[str, tuple[object, int, Any]]] = OrderedDict()
        self._made: OrderedDict[Hashable, dict[str, tuple[tuple[object, ...], Any]]] = OrderedDict()

    async def of_days(
        self, tx: Transaction, what: Hashable, span: tuple[int, int], make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return what the days of a span (first, last) amount to, by backend (case folded).

        `what` tells different sums of the same days from each other: everything that `make` depends on.
        """
        first, last = span
        stale = await rollup.stale_days(tx, first, last=last)
        mark = (await rollup.fingerprint(tx, first, last), frozenset(stale.items()))
        known: _Kept[T] | None = self._kept.get((what, span))
        if known is None or known.mark != mark:
            marks = await rollup.marks(tx, first, last, stale)
            found = {key: known.found[key] for key in marks if known and known.marks.get(key) == marks[key]}
            changed = marks.keys() - found.keys()
            parts: dict[str, list[Day]] = {key: [] for key in changed}
            for one in await rollup.read(tx, first, last=last, backends=None if not found else changed):
                parts[one.key].append(one)
            for key, part in parts.items():
                found[key] = make(part)
            known = _Kept(mark=mark, marks=marks, found=found)
        _keep(self._kept, (what, span), known)
        return known.found

    async def since(
        self, tx: Transaction, what: Hashable, at: int, make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return what the days from a moment on amount to; counted again too once a row is older than that."""
        first, last = at // DAY, tx.now // DAY
        marks = await rollup.marks(tx, first, last, await rollup.stale_days(tx, first, last=last))
        known: dict[str, tuple[object, int, T]] = self._since.get(what, {})
        found = {
            key: known[key]
            for key, mark in marks.items()
            if key in known and known[key][0] == mark and known[key][1] >= at
        }
        changed = marks.keys() - found.keys()
        for key, one in (await rollup.since(tx, at, changed) if changed else {}).items():
            found[key] = (marks[key], one.oldest, make(one.days))
        _keep(self._since, what, found)
        return {key: one for key, (_, _, one) in found.items()}

    def made(
        self,
        what: Hashable,
        parts: Mapping[str, tuple[object, ...]],
        make: Callable[..., T],
        *,
        mark: Hashable,
    ) -> dict[str, T]:
        """Return what is made of each backend's parts; of the same parts as last time it is what it was then.

        `mark` stands for whatever else `make` depends on: under another one everything is made again.
        """
        known = self._made.get(what, {})
        found = {
            key: known[key] if key in known and known[key][0] == (mark, mine) else ((mark, mine), make(*mine))
            for key, mine in parts.items()
        }
        _keep(self._made, what, found)
        return {key: cast("T", one) for key, (_, one) in found.items()}


PAST: web.AppKey[Past] = web.AppKey("past", Past)


def _keep(kept: OrderedDict[Hashable, Any], name: Hashable, found: object) -> None:
    kept[name] = found
    kept.move_to_end(name)
    while len(kept) > MOST:
        kept.popitem(last=False)
