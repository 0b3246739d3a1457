"""The order of backends on the health page and in its JSON, as an address asks for it: `?sort=runs`, `?sort=-runs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from bot.web import view_parameters as declare
from bot.web.answers import matching
from bot.web.refusals import INVALID_PARAMETER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bot.oot.pages.health import Health
    from bot.web.asked import Parameter

Value = float | str | None
# what each column is sorted by, and whether its largest come first
VALUES: Mapping[str, tuple[Callable[[Health], Value], bool]] = {
    "name": (lambda one: one.label.casefold(), False),
    "pass_rate": (lambda one: one.stats.pass_rate, False),
    "runs": (lambda one: one.stats.runs, True),
    "failed": (lambda one: one.stats.failure, True),
    "timed_out": (lambda one: one.stats.timed_out, True),
    "never_started": (lambda one: one.stats.never_started, True),
    "duration": (lambda one: one.stats.median_execution_time, True),
    "queue": (lambda one: one.stats.median_queue_time, True),
    "waiting": (lambda one: one.waiting, True),
    "last_report": (lambda one: one.last_report_at, False),
}


@dataclass(frozen=True, kw_only=True)
class Order:
    """How backends are sorted."""

    column: str = ""  # empty: by level, the worst first
    reverse: bool = False  # the other way round than usual for this column

    @property
    def text(self) -> str:
        """The order as an address has it."""
        return f"-{self.column}" if self.reverse else self.column

    def link(self, column: str) -> str:
        """Return the order that a click on a column asks for: that column's, or its other direction."""
        return f"-{column}" if column == self.column and not self.reverse else column

    def direction(self, column: str) -> str:
        """Return the direction that a column is sorted in, as browsers call it; empty where it is not."""
        if column != self.column:
            return ""
        return "descending" if VALUES[column][1] is not self.reverse else "ascending"

    def sort(self, backends: Iterable[Health]) -> list[Health]:
        """Return backends in this order; those without a value come last, whatever the direction."""
        found = list(backends)
        if not self.column:
            return found
        value, largest_first = VALUES[self.column]
        known = [one for one in found if value(one) is not None]
        unknown = [one for one in found if value(one) is None]
        known.sort(key=lambda one: one.label.casefold())
        known.sort(key=value, reverse=largest_first is not self.reverse)  # type: ignore[arg-type]  # all of one kind
        return known + unknown


def _parse(text: str) -> Order:
    column = text.removeprefix("-")
    if column not in VALUES:
        detail = f"sort must be one of {', '.join(VALUES)}; a - before it turns the order round"
        raise INVALID_PARAMETER.because(detail)
    return Order(column=column, reverse=text != column)


SORT: Parameter[Order] = declare.parsed(
    "sort",
    Annotated[str, matching(f"-?({'|'.join(VALUES)})")],
    "the order, by one of these columns; a - before it turns it round. Otherwise by level, the worst first",
    parse=_parse,
    default=Order(),
)
