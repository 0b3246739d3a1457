"""What does a log line look like? One event a line, with the delivery or request it belongs to; never a secret.

What strangers wrote is in it as words only: nothing in a line moves the cursor or turns the text of whoever reads it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain import inert
from bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

MINUTE = 60.0  # seconds

# the request being answered: its id and its path; set for every one, looked at only where a line is written
REQUEST: ContextVar[tuple[str, str] | None] = ContextVar("request", default=None)


class Complaints:
    """Logs what failed. A database that cannot be used is a line a minute, not a traceback for every try.

    It is tried every second, and the disk that is full may be the one the log lies on.
    """

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log = log
        self._said: dict[str, float] = {}

    def say(self, event: str, error: Exception, **more: object) -> None:
        """Log an error: one of the database's once a minute for each event, any other with its traceback."""
        if not isinstance(error, StoreUnavailable):
            self._log.exception(event, exc_info=error, **more)
        elif (now := asyncio.get_running_loop().time()) - self._said.get(event, -MINUTE) >= MINUTE:
            self._said[event] = now
            self._log.error(event, reason=str(error), **more)


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
        shared += [structlog.processors.format_exc_info, _inert]
        last = structlog.processors.JSONRenderer()
    else:
        shared.append(_inert)
        last = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # what strangers send malformed is answered, not logged: it could fill the disk; our own errors the guard logs
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    _others(shared, last)


def _name_request(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Say in a line which request it belongs to."""
    if (found := REQUEST.get()) is not None:
        event["request"], event["path"] = found
    return event


def _inert(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Take out of what is said whatever a terminal would obey."""
    return {name: inert.clean(said) if isinstance(said, str) else said for name, said in event.items()}


def _others(shared: list[Processor], last: Any) -> None:
    """Have what libraries log look the same, from warnings on."""
    steps = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, last]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=steps))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
