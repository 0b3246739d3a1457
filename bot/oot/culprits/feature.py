"""The feature `culprits`: which upstream commit broke a backend, found by running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature, NavigationEntry

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"bisect_scan": 300.0}


FEATURE = Feature(
    name="culprits",
    tables="bot.oot.culprits.tables",
    tasks={
        "bisect": "bot.oot.culprits.advance:advance_search",
        "bisect_branch": "bot.oot.culprits.rewritten:check_branch",
        "bisect_found": "bot.oot.culprits.found_task:follow_find",
        "bisect_run": "bot.oot.culprits.own_runs:run_commit",
        "bisect_scan": "bot.oot.culprits.scan:scan",
    },
    background=frozenset({"bisect_scan"}),
    periodic="bot.oot.culprits.feature:periodic",
    before_commit="bot.oot.culprits.follow_changes:before_commit",
    exports="bot.oot.culprits.exports:EXPORTS",
    prune="bot.oot.culprits.prune:delete_old_searches",
    settings="bot.oot.culprits.settings:CulpritsSettings",
    comment_commands="bot.oot.culprits.command:COMMANDS",
    admin_forms={
        "/bisects": "bot.oot.culprits.admin:begin_search",
        "/bisects/{id}/cancel": "bot.oot.culprits.admin:cancel",
    },
    commands={"bisect": "bot.console.bisect:bisect"},
    metrics="bot.oot.culprits.metrics:measure_searches",
    conditions="bot.oot.culprits.conditions:read_conditions",
    doctor="bot.oot.culprits.doctor:check_own_runs",
    views="bot.oot.culprits.views:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/bisects",
            label="Culprits",
            place=15,
            shown="bot.oot.culprits.views:has_searches",
            covers=("/{repo}/bisects/",),
        ),
    ),
    sections={
        "pull": "bot.oot.culprits.sections:describe_pull",
        "commit": "bot.oot.culprits.sections:describe_commit",
        "grid": "bot.oot.culprits.sections:mark_grid",
        "backend_run": "bot.oot.culprits.sections:mark_runs",
        "failure": "bot.oot.culprits.sections:describe_failure",
    },
)
