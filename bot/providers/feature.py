"""What other CIs add to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature
from bot.providers import events

if TYPE_CHECKING:
    from bot.core.settings import Settings


DELIVERIES = {
    f"circleci.{events.JOB_COMPLETED}": "bot.providers.deliveries:record_circleci_job",
    f"circleci.{events.WORKFLOW_COMPLETED}": "bot.providers.deliveries:record_circleci_workflow",
    **{f"buildkite.{one}": "bot.providers.deliveries:record_buildkite_job" for one in events.JOB_EVENTS},
    **{f"buildkite.{one}": "bot.providers.deliveries:record_buildkite_build" for one in events.BUILD_EVENTS},
    **{f"buildkite.{one}": "bot.providers.deliveries:record_buildkite_agent" for one in events.AGENT_EVENTS},
}


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"providers": 60.0}


FEATURE = Feature(
    name="providers",
    tables="bot.providers.tables",
    tasks={
        "providers": "bot.providers.waiting:handle_waiting",
        "provider_log": "bot.providers.fetch_log:fetch_log",
        "provider_reports": "bot.providers.fetch_reports:fetch_reports",
    },
    background=frozenset({"provider_log", "provider_reports"}),
    periodic="bot.providers.feature:periodic",
    views="bot.providers.views:VIEWS",
    senders="bot.providers.admission:SENDERS",
    deliveries=DELIVERIES,
    before_commit="bot.providers.cells:write_cells",
    observer="bot.providers.wanted_files:make_observer",
    exports="bot.providers.exports:EXPORTS",
    prune="bot.providers.prune:delete_old_rows",
    watched="bot.providers.waiting:watched",
    reconcile="bot.providers.reconcile:compare_statuses",
    doctor="bot.providers.doctor:check_providers",
    settings="bot.providers.settings:ProviderSettings",
    commands={"providers": "bot.console.providers:providers"},
    sections={
        "queue": "bot.providers.sections:describe_queue",
        "admin": "bot.providers.sections:describe_unmapped",
    },
)
