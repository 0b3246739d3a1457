"""What jobs and their grid add to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import StoreUnavailable
from bot.core.feature import Feature, Finding, warning
from bot.jobs.settings import TrunkSettings
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.ops.doctor import Target

FEATURE = Feature(
    name="trunk",
    tables="bot.jobs.tables",
    exports="bot.jobs.exports:EXPORTS",
    tasks={
        "branch": "bot.jobs.branch_lists:list_branches",
        "trunk_changes": "bot.jobs.column_changes:record_changes",
    },
    background=frozenset({"trunk_changes"}),
    sums=("bot.jobs.branches:BRANCHES", "bot.jobs.branches:RUNNERS"),
    periodic="bot.jobs.feature:periodic",
    before_commit="bot.jobs.job_cells:write_cells",
    prune="bot.jobs.branch_commits:delete_old_rows",
    conditions="bot.jobs.branch_standing:read_conditions",
    metrics="bot.jobs.column_changes:measure_broken",
    doctor="bot.jobs.feature:check_groups",
    settings="bot.jobs.settings:TrunkSettings",
)


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"branch": 600.0}


async def check_groups(target: Target) -> list[Finding]:
    """Name repositories with groups of their own that are neither an upstream nor on the allowlist."""
    wanted = [repo for repo, _ in target.settings.of(TrunkSettings).ci_groups.own]
    if not wanted or not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            listed = await allowlists.read_in_force(tx)
    except StoreUnavailable:
        return []  # another check says so
    known = {repo.casefold() for repo in target.settings.upstream_repo}
    known |= {entry.key for entry in (listed.entries if listed else ())}
    unknown = [repo for repo in wanted if repo not in known]
    if not unknown or listed is None:
        return []
    names = ", ".join(repo[:100] for repo in unknown[:5])
    return [warning("ci_groups", f"no event comes from {names}", "name an upstream repository or a backend")]
