"""What pages say of a temporary demotion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.publish.demotion_rows import demoting_pulls
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.web.subjects import BackendPageSubject


async def show_demotion(tx: Transaction, subject: BackendPageSubject) -> list[Block]:
    """Return why a backend begins no check runs, if it is demoted."""
    lines = []
    for upstream in subject.upstreams:
        number = (await demoting_pulls(tx, upstream)).get(subject.repo.casefold())
        if number is not None:
            words = f"at L3 it begins no check runs: {upstream}#{number} proposes to demote it, until it is closed"
            lines.append(BlockLine(text=words, url=f"/{upstream}/pull/{number}", tone="wait"))
    return [Block(heading="Temporary demotion", lines=tuple(lines))] if lines else []
