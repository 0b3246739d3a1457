"""How the branches stand that are looked after: the default one of each upstream, and others where a job is broken."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk import branch_standing, reading
from bot.ci.trunk.store import broken_counts
from bot.core.errors import Rejected

if TYPE_CHECKING:
    from bot.ci.trunk.branch_standing import Standing
    from bot.ci.trunk.reading import Branch
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden

BROKEN_MOST = 10  # branches of an upstream beside the default one


class StandingBranch(NamedTuple):
    """A branch, and how it stands."""

    branch: Branch
    standing: Standing


async def read_standings(
    tx: Transaction, settings: Settings, hidden: Hidden, *, repo: str = ""
) -> list[StandingBranch]:
    """Return the branches of every upstream, or of one, that may be shown: the default one of each first."""
    broken: dict[str, set[str]] = {}
    for (full_name, name, _), count in (await broken_counts.read_counts(tx, settings, hidden)).items():
        if count:
            broken.setdefault(full_name.casefold(), set()).add(name)
    found = []
    for upstream in settings.upstream_repo:
        if repo and upstream.casefold() != repo.casefold():
            continue
        with contextlib.suppress(Rejected):
            default = await reading.find_branch(tx, hidden, upstream, "")
            others = sorted(broken.get(default.repository["full_name"].casefold(), set()) - {default.name})
            for name in [*filter(None, [default.name]), *others[:BROKEN_MOST]]:
                branch = await reading.find_branch(tx, hidden, upstream, name)
                found.append(
                    StandingBranch(branch, await branch_standing.read_standing(tx, settings, branch))
                )
    return found
