"""Options of the children that parse and search logs: shared by the bot, which never loads them.

What a search answers is here, too; what the parser answers is in `bot.ci.logs.findings`.
"""

from __future__ import annotations

import msgspec

from bot.ci.logs.parse.rules import Ruleset
from bot.ci.logs.parse.steps import Step


class ParserOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the job, which GitHub says and the log does not."""

    ruleset: Ruleset | None = None  # None: the log is kept, not classified, as that of a success
    steps: tuple[Step, ...] = ()
    annotations: tuple[str, ...] = ()  # errors that GitHub notes beside the job


class SearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for in a log."""

    pattern: str
    most: int  # lines


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line that matches."""

    line_num: int
    line: str


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a log."""

    hits: list[SearchHit]
    more: bool  # there are more lines that match
    whole: bool  # nothing of the log was left out for want of time
    seconds: float  # of processor time
