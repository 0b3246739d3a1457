"""What collecting adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind."""
    return {"ci_sweep": 600.0}


FEATURE = Feature(
    name="collect",
    tables="bot.ci.collect.tables",
    tasks={
        "artifacts": "bot.ci.collect.list_artifacts:run",
        "collect": "bot.ci.collect.fetch_artifact:run",
        "log": "bot.ci.collect.fetch_log:run",
        "upload": "bot.ci.collect.read_upload:run",
        "ci_sweep": "bot.ci.collect.sweep:run",
    },
    background=frozenset({"artifacts", "collect", "log", "upload"}),
    periodic="bot.ci.collect.feature:periodic",
    before_commit="bot.ci.collect.read_upload:note",
    routes="bot.ci.collect.pages:setup",
    openapi="bot.ci.collect.openapi:OPERATIONS",
    sections={
        "pull": "bot.ci.collect.sections:of_pull",
        "commit": "bot.ci.collect.sections:of_commit",
        "run": "bot.ci.collect.sections:of_run",
        "job": "bot.ci.collect.sections:of_job",
        "admin": "bot.ci.collect.scope:for_admin",
    },
    prune="bot.ci.collect.prune:prune",
    doctor="bot.ci.collect.doctor:check",
    commands={"ci": "bot.console.ci:ci"},
    settings="bot.ci.collect.settings:CollectSettings",
)
