"""The gate of a commit as the API answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.oot.publish import check_run_text
from bot.oot.verdict.gate import GateState
from bot.web.answers import Time, time

if TYPE_CHECKING:
    from bot.oot.pages.pulls import PullPage


class Gate(Struct, frozen=True):
    """The gate of the shown head, as its check run says."""

    name: str
    state: GateState
    title: Annotated[str, Meta(description="of its check run")]
    sentence: Annotated[str, Meta(description="what it means for merging")]
    blocking: Annotated[int, Meta(description="backends that block")]
    passed: int
    ignored: Annotated[int, Meta(description="that block and count as passed by `/oot ignore`")]
    waiting_since: Time | None
    pull_number: Annotated[
        int, Meta(description="the pull request that decides: several can have one commit")
    ]
    check_run_id: Annotated[int | None, Meta(description="GitHub's; null before it was written")]


def read(page: PullPage, *, prefix: str) -> Gate | None:
    """Return the gate of the shown head."""
    if page.gate is None:
        return None
    found = page.gate.gate
    return Gate(
        name=check_run_text.gate(prefix),
        state=found.state,
        title=found.title,
        sentence=found.sentence(open_=page.decisive),
        blocking=len(found.blocking),
        passed=found.passed,
        ignored=len(found.blocking) - len(found.deciding),
        waiting_since=time(found.waiting_since),
        pull_number=page.gate.number,
        check_run_id=page.gate.check_run_id,
    )
