"""The feature `dispatch`: upstream events are dispatched to backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"sweep": 60.0, "machines": 15.0}


FEATURE = Feature(
    name="dispatch",
    tables="bot.oot.dispatch.tables",
    tasks={
        "approve": "bot.oot.dispatch.approval:approve_labeled",
        "ping": "bot.oot.dispatch.ping:send_ping",
        "dispatch": "bot.oot.dispatch.send_dispatch:send_dispatch",
        "relay": "bot.oot.dispatch.plan_dispatches:plan_dispatches",  # databases hold it by this name
        "machines": "bot.oot.dispatch.machines:release_waiting",
        "select": "bot.oot.dispatch.select_again:select_again",
        "sweep": "bot.oot.dispatch.timeouts:conclude_overdue",
    },
    periodic="bot.oot.dispatch.feature:periodic",
    sections={
        "backend": "bot.oot.dispatch.ping_steps:show_backend",
        "pull": "bot.oot.dispatch.asked_block:describe_pull",
    },
    doctor="bot.oot.dispatch.doctor:check_selection",
    admin_forms={"/ping": "bot.oot.dispatch.ping:request_by_form"},
    prune="bot.oot.dispatch.prune:prune",
    reconcile="bot.oot.dispatch.reconcile_pulls:reconcile",
)
