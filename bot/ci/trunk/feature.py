"""What the grid of a repository's own CI adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature, NavigationEntry

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"branch": 600.0}


FEATURE = Feature(
    name="trunk",
    tables="bot.ci.trunk.tables",
    exports="bot.ci.trunk.exports:EXPORTS",
    tasks={
        "branch": "bot.ci.trunk.list_branch:list_branches",
        "trunk_changes": "bot.ci.trunk.record_changes:record_changes",
    },
    background=frozenset({"trunk_changes"}),
    sums=("bot.ci.trunk.store.changed_days:BRANCHES", "bot.ci.trunk.store.changed_days:RUNNERS"),
    periodic="bot.ci.trunk.feature:periodic",
    before_commit="bot.ci.trunk.store.cell_index:write_cells",
    views="bot.ci.trunk.views.routes:VIEWS",
    routes="bot.ci.trunk.views.routes:setup",
    navigation=(
        NavigationEntry(bar="site", path="/hud", label="CI", place=10, covers=("/hud/", "/{repo}")),
        NavigationEntry(
            bar="repository",
            path="/hud/{repo}",
            label="Grid",
            place=10,
            shown="bot.ci.trunk.views.home:has_grid",
            covers=("/hud/{repo}/",),
        ),
        NavigationEntry(
            bar="repository",
            path="/{repo}/queue",
            label="Runners",
            place=60,
            shown="bot.ci.trunk.views.home:has_runners",
        ),
        NavigationEntry(
            bar="repository",
            path="/{repo}/metrics",
            label="CI metrics",
            place=70,
            shown="bot.ci.trunk.views.home:has_days",
        ),
        NavigationEntry(
            bar="repository",
            path="/{repo}/reliability",
            label="Reliability",
            place=71,
            shown="bot.ci.trunk.views.home:has_days",
        ),
    ),
    search="bot.ci.trunk.views.search_hits:find_hits",
    sections={
        "pull": "bot.ci.trunk.views.job_times:draw_pull",
        "commit": "bot.ci.trunk.views.job_times:draw_commit",
        "about": "bot.ci.trunk.views.sections:about_commit",
        "elsewhere": "bot.ci.trunk.jobs_elsewhere:find_jobs_elsewhere",
        "failures": "bot.ci.trunk.views.sections:find_failures",
        "run": "bot.ci.trunk.views.job_times:draw_run",
        "repository": "bot.ci.trunk.views.repository_section:describe_repository",
        "instead": "bot.ci.trunk.views.repository_section:lead_to_commit",
        "missing": "bot.ci.trunk.views.repository_section:describe_missing",
    },
    prune="bot.ci.trunk.store.prune:delete_old_rows",
    conditions="bot.ci.trunk.conditions:read_conditions",
    metrics="bot.ci.trunk.store.broken_counts:measure_broken",
    doctor="bot.ci.trunk.doctor:check_groups",
    home="bot.ci.trunk.views.home:find_home",
    settings="bot.ci.trunk.settings:TrunkSettings",
)
