"""The log's format: one event a line, with the delivery or request it belongs to; never a secret."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import structlog

from bot.core import escaping
from bot.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, Processor

MINUTE = 60.0  # seconds

# id and path of the request being answered; set for each, read only when a line is written
REQUEST: ContextVar[tuple[str, str] | None] = ContextVar("request", default=None)


class ErrorLog:
    """Logs unexpected errors: one traceback per place and minute, with the number of those left out before.

    An unusable database gets one line a minute and no traceback: attempts come every second, and the full disk
    may be the one that holds the log.
    """

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, *, now: Callable[[], float] | None = None
    ) -> None:
        self._log = log
        self._now = now or asyncio.get_running_loop().time  # seconds
        self._logged_at: dict[str, float] = {}  # by what the line is about
        self._left_out: Counter[str] = Counter()

    def write(self, event: str, error: BaseException, **more: object) -> None:
        """Log an error, unless the same place has logged one within the last minute."""
        unusable = isinstance(error, StoreUnavailable)
        about = event if unusable else f"{event} {_place(error)}"
        now = self._now()
        if now - self._logged_at.get(about, -MINUTE) < MINUTE:
            self._left_out[about] += 1
            self._log.debug(event, reason=str(error), **more)
            return
        self._logged_at[about] = now
        if left_out := self._left_out.pop(about, 0):
            more["not_logged_before"] = left_out
        if unusable:
            self._log.error(event, reason=str(error), **more)
        else:
            self._log.error(event, exc_info=error, **more)


def configure(*, fmt: str, level: str) -> None:
    """Set up logging for this process: `console` for people, `json` for machines; to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _name_request,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: Any
    if fmt == "json":
        shared += [structlog.processors.format_exc_info, _without_control_characters]
        last = structlog.processors.JSONRenderer()
    else:
        shared.append(_without_control_characters)
        # where rich is installed, tracebacks would take seconds and show what the variables hold
        last = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # malformed requests are answered, not logged: they could fill the disk; our own errors are logged by middleware
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    _configure_libraries(shared, last)


def _place(error: BaseException) -> int:
    """Return where an error came from: its type, and the lines it passed, however often."""
    lines = {(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)}
    return hash((type(error), frozenset(lines)))


def _name_request(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Add the request that a line belongs to."""
    if (request := REQUEST.get()) is not None:
        event["request"], event["path"] = request
    return event


def _without_control_characters(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Remove whatever a terminal would act on."""
    return {name: escaping.clean(value) if isinstance(value, str) else value for name, value in event.items()}


def _configure_libraries(shared: list[Processor], last: Any) -> None:
    """Give the libraries' warnings and errors the same format."""
    steps = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, last]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=steps))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
