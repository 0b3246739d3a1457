"""What there is instead of a page that is not there: repositories, backends, pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import pull_rows
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.web.subjects import MissingSubject

BACKENDS = 200


async def describe(tx: Transaction, subject: MissingSubject) -> list[Block]:
    """Return the repositories that are watched, and what is nearer to the address."""
    found = []
    hidden, settings = subject.asked.hidden, subject.asked.settings
    if subject.path.startswith("/oot"):
        found += await _backends(tx, subject)
    if subject.code in {"unknown", "unknown_pull_request", "unknown_commit"} and subject.repo:
        found += await _pulls(tx, subject)
    upstreams = [one for one in settings.upstream_repo if not hidden.has(one)]
    lines = tuple(BlockLine(text=one, url=f"/{one}") for one in upstreams)
    if lines:
        found.append(Block(heading="Watched repositories", lines=lines))
    return found


async def _backends(tx: Transaction, subject: MissingSubject) -> list[Block]:
    if all(map(subject.asked.hidden.has, subject.asked.settings.upstream_repo)):
        return []
    allowlist = await allowlists.in_force(tx)
    entries = sorted(allowlist.entries if allowlist else (), key=lambda one: (-one.level, one.key))
    lines = tuple(
        BlockLine(
            text=f"{one.device}, {one.repo}" if one.device else one.repo,
            url=f"/oot/{one.repo}",
        )
        for one in entries[:BACKENDS]
    )
    return [Block(heading="Backends", lines=lines)] if lines else []


async def _pulls(tx: Transaction, subject: MissingSubject) -> list[Block]:
    repo = subject.repo
    if subject.asked.hidden.has(repo) or not await pull_rows.has_pulls(tx, repo):
        return []
    line = BlockLine(text=f"Pull requests of {repo}", url=f"/{repo}/pulls")
    return [Block(heading="Near it", lines=(line,))]
