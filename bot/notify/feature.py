"""The feature `notify`: people are told what broke and what recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"notices": 10.0}


FEATURE = Feature(
    name="notify",
    tables="bot.notify.tables",
    tasks={
        "notices": "bot.notify.check:check_conditions",
        "notify": "bot.notify.send:send_notices",
    },
    periodic="bot.notify.feature:periodic",
    conditions="bot.notify.gates:read_conditions",
    views="bot.notify.views:VIEWS",
    prune="bot.notify.prune:prune_notices",
    metrics="bot.notify.operating:measure_unsent",
    doctor="bot.notify.operating:check_receivers",
    sections={"admin": "bot.notify.operating:admin_section"},
    admin_forms={"/notify": "bot.notify.operating:retry_by_form"},
    settings="bot.notify.settings:NotifySettings",
    commands={"notify": "bot.console.notify:notify"},
)
