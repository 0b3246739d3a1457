"""What is known of days gone by, without adding them up for every page? Sums in memory, good while no day changes."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aiohttp import web

from bot.domain.tally import NOTHING, Tally, total
from bot.store import rollup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.days import Day
    from bot.store import Transaction
    from bot.web.access import Access

LIVELY = 2  # newest days that are read every time: they change
MOST = 12  # windows kept
HOURS = 9  # newest days whose hours are kept, for what turned red or green


@dataclass(kw_only=True)
class Sum:
    """One backend over the days gone by."""

    newest: Day  # its name and level, as they were last
    counted: Tally = NOTHING  # of the window
    last_at: int = 0
    drawn: list[Day] = field(default_factory=list)  # every day, without times


Sums = dict[str, Sum]  # by case folded name


class Past:
    """Sums by window; a sum is used again as long as the same days are kept as when it was made."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], tuple[object, Sums]] = OrderedDict()

    async def read(
        self, tx: Transaction, access: Access, *, first: int, counted_from: int, today: int
    ) -> Sums:
        """Return sums of the days from `first` on that are over for good; only what may be shown."""
        last = today - LIVELY
        key = (first, counted_from, last, access.names)
        stale = await rollup.stale_days(tx, first, last=last, limit=1)
        mark = await rollup.fingerprint(tx, first, last)
        found = self._kept.get(key)
        if found is not None and found[0] == mark and not stale:
            self._kept.move_to_end(key)
            return found[1]
        days = [one for one in await rollup.read(tx, first, last=last) if not access.hides(one.upstream)]
        sums = _sums(days, counted_from=counted_from, today=today)
        if not stale:
            self._kept[key] = (mark, sums)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        return sums


PAST: web.AppKey[Past] = web.AppKey("past", Past)


def _sums(days: Iterable[Day], *, counted_from: int, today: int) -> Sums:
    parts: dict[str, list[Day]] = defaultdict(list)
    for one in days:
        parts[one.key].append(one)
    return {
        key: Sum(
            newest=max(part, key=lambda one: one.day),
            counted=total(one.tally for one in part if one.day >= counted_from),
            last_at=max(one.tally.last_at for one in part),
            drawn=[_light(one, keep_hours=one.day > today - HOURS) for one in part],
        )
        for key, part in parts.items()
    }


def _light(one: Day, *, keep_hours: bool) -> Day:
    """Return a day without histograms: what lines are drawn from."""
    tally = replace(one.tally, execution=0, queue=0, whole=0)
    return replace(one, tally=tally, hours=one.hours if keep_hours else {})
