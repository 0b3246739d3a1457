"""Further commands in comments, which other capabilities bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.feature import load_each

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bot.context import Context
    from bot.core.feature import Features
    from bot.oot.commands.execute_command import Outcome, Request


@dataclass(frozen=True, kw_only=True)
class FurtherCommand:
    """A command that is none of this capability's own, on pull requests, open or closed, and on issues."""

    verb: str
    usage: str  # without `/oot`
    does: str
    who: str  # may give it
    # may be called again for the same request, and then comes to the same
    carry_out: Callable[[Context, Request, Sequence[str]], Awaitable[Outcome]]


def further_commands(features: Features) -> dict[str, FurtherCommand]:
    """Return the commands that capabilities bring, by their verbs."""
    return {one.verb: one for some in load_each(features, "comment_commands") for one in some}
