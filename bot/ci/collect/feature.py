"""What collecting adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature, NavigationEntry

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"ci_sweep": 600.0}


FEATURE = Feature(
    name="collect",
    tables="bot.ci.collect.tables",
    exports="bot.ci.collect.exports:EXPORTS",
    tasks={
        "artifacts": "bot.ci.collect.tasks.list_artifacts:list_artifacts",
        "collect": "bot.ci.collect.tasks.fetch_artifact:fetch_artifact",
        "log": "bot.ci.collect.tasks.fetch_log:fetch_log",
        "upload": "bot.ci.collect.tasks.read_upload:read_upload",
        "ci_sweep": "bot.ci.collect.tasks.sweep:request_overdue",
    },
    background=frozenset({"artifacts", "collect", "log", "upload"}),
    periodic="bot.ci.collect.feature:periodic",
    before_commit="bot.ci.collect.tasks.read_upload:request_waiting",
    views="bot.ci.collect.views.routes:VIEWS",
    routes="bot.ci.collect.views.routes:setup",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/storage",
            label="Storage",
            place=80,
            shown="bot.ci.collect.views.routes:has_artifacts",
        ),
    ),
    search="bot.ci.collect.views.search_hits:find_hits",
    sections={
        "pull": "bot.ci.collect.sections:pull_artifacts",
        "commit": "bot.ci.collect.sections:commit_artifacts",
        "run": "bot.ci.collect.sections:run_artifacts",
        "job": "bot.ci.collect.sections:job_artifacts",
        "admin": "bot.ci.collect.collection_scope:admin_section",
    },
    prune="bot.ci.collect.tasks.prune:prune_collected",
    doctor="bot.ci.collect.doctor:check_collecting",
    commands={"ci": "bot.console.ci:ci"},
    settings="bot.ci.collect.settings:CollectSettings",
)
