"""Lines of `ootbot doctor` about the grid: options that name a repository of which no event comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk.settings import TrunkSettings
from bot.core.errors import StoreUnavailable
from bot.core.finding import Finding, warning
from bot.oot.allowlist import rows as allowlists

if TYPE_CHECKING:
    from bot.ops.doctor.target import Target


async def check_groups(target: Target) -> list[Finding]:
    """Name the repositories with groups of their own that are neither an upstream nor on the allowlist."""
    wanted = [repo for repo, _ in target.settings.of(TrunkSettings).ci_groups.own]
    if not wanted or not await target.has_database():
        return []
    try:
        async with target.store.read() as tx:
            listed = await allowlists.in_force(tx)
    except StoreUnavailable:
        return []  # another check says so
    known = {repo.casefold() for repo in target.settings.upstream_repo}
    known |= {entry.key for entry in (listed.entries if listed else ())}
    unknown = [repo for repo in wanted if repo not in known]
    if not unknown or listed is None:
        return []
    names = ", ".join(repo[:100] for repo in unknown[:5])
    return [warning("ci_groups", f"no event comes from {names}", "name an upstream repository or a backend")]
