"""What the search of a log is told and what it answers: shared by the bot, which never loads it, and its child."""

from __future__ import annotations

import msgspec

PARSER = "bot.ci.logs.parse.search_child:parse"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for."""

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
