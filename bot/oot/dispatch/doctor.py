"""Lines of `ootbot doctor` about selective dispatch: whose `paths` are heeded, whose are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.finding import Finding, ok, warning
from bot.oot.allowlist import rows as allowlists
from bot.oot.dispatch.decide import heeds_paths

if TYPE_CHECKING:
    from bot.ops.doctor.target import Target

NAME = "selection"


async def check_selection(target: Target) -> list[Finding]:
    """Name the blocking backends that run whatever changed, and those that the gate passes without."""
    if not await target.has_database():
        return []
    async with target.store.read() as tx:
        allowlist = await allowlists.in_force(tx)
    findings = []
    for entry in allowlist.entries if allowlist else ():
        if entry.paths and not heeds_paths(entry):
            words = f"{entry.label} blocks, so its `paths` are ignored: it runs every pull request"
            todo = "add `paths_pass: true` to let the gate pass without it, or remove `paths`"
            findings.append(warning(NAME, words, todo))
        elif entry.paths_pass:
            words = f"the gate passes without {entry.label} where no file of its `paths` changed"
            findings.append(ok(NAME, words))
    return findings
