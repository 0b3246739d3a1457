"""Who was asked to run a pull request's newest head and why not, on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.dispatch.explain import explain_pull
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.dispatch.explain import Asked
    from bot.web.blocks import Tone
    from bot.web.subjects import PullSubject

TONES: dict[str, Tone] = {"sent": "good", "waiting": "wait", "skipped": "idle"}
NOT_SENT = ("waiting", "skipped")
MOST_LINES = 20  # that are not folded


async def describe_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return the list of backends, where not all were simply sent the newest head."""
    found = await explain_pull(tx, subject.settings, subject.repo, subject.number)
    if found is None or found.head_sha != subject.head_sha:
        return []
    sent = [_line(one) for one in found.asked if one.outcome == "sent"]
    others = [_line(one) for outcome in NOT_SENT for one in found.asked if one.outcome == outcome]
    if not others:
        return []
    return [
        Block(
            heading="Who was asked, and why not",
            lines=tuple(others[:MOST_LINES]),
            folded=(*others[MOST_LINES:], *sent),
            summary=f"{len(sent)} sent"
            + (f", {len(others) - MOST_LINES} more" if others[MOST_LINES:] else ""),
        )
    ]


def _line(one: Asked) -> BlockLine:
    said = one.why.startswith(one.outcome)  # as in "waiting for a machine"
    return BlockLine(
        text=f"{one.label}: {one.why if said else f'{one.outcome}, {one.why}'}", tone=TONES[one.outcome]
    )
