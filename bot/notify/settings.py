"""The options of notices."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.settings import option
from bot.notify.receivers import Receiver, read_receivers


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Who is told of what."""

    notify: tuple[Receiver, ...] = option(
        "Receivers of notices: tables `[[notify]]`, or a JSON list; docs/notify.md says what one has.",
        read_receivers,
        default=(),
        secret=True,
    )
    notify_gate_wait: int = option(
        "How long a gate waits for backends before people are told.",
        setting_types.duration,
        default=2 * 3600,
    )
