"""The feature `notify`: people are told what broke and what recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings

FEATURE = Feature(
    name="notify",
    tables="bot.notify.tables",
    tasks={
        "notices": "bot.notify.notices:check_conditions",
        "notify": "bot.notify.sending:send_notices",
    },
    periodic="bot.notify.feature:periodic",
    conditions="bot.notify.waiting_gates:read_conditions",
    prune="bot.notify.rows:prune_notices",
    metrics="bot.notify.administration:measure_unsent",
    doctor="bot.notify.administration:check_receivers",
    sections={"admin": "bot.notify.administration:admin_section"},
    admin_forms={"/notify": "bot.notify.administration:retry_dead_by_form"},
    settings="bot.notify.receivers:NotifySettings",
    commands={"notify": "bot.console.notify:notify"},
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"notices": 10.0}
