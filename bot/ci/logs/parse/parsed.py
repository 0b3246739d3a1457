"""What the parser of logs is told and what it answers: shared by the bot, which never loads it, and its child."""

from __future__ import annotations

import msgspec

from bot.ci.logs.parse.rules import Ruleset
from bot.ci.logs.parse.steps import Step


class FirstError(msgspec.Struct, kw_only=True, frozen=True):
    """The earliest line that a rule for builds matches."""

    rule: str
    kind: str
    line: str
    line_num: int


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the parser is told about the job, which GitHub says and the log does not."""

    ruleset: Ruleset | None = None  # None: the log is kept, not classified, as that of a success
    steps: tuple[Step, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as it is stored; `rule` is None where no rule matches."""

    rank: int
    ruleset: str
    rule: str | None
    kind: str
    line: str | None = None
    line_num: int | None = None
    captures: list[str] = []
    context: list[str] = []
    excerpt: list[str] = []
    excerpt_from: int | None = None
    step: str | None = None
    hint: str | None = None
    signature: str | None = None
    title: str | None = None


class Classified(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules found in a log that is stored already."""

    verdicts: list[Found]
    first_error: FirstError | None


class ParsedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log as it was stored, and what the rules found in it."""

    bytes: int  # of the plain log as stored
    lines: int
    longest_line: int
    sha256: str  # of the plain log as stored
    first_at: int | None
    last_at: int | None
    truncated: bool  # some line was too long to be kept whole
    secrets_masked: int
    verdicts: list[Found]  # empty where the log was not classified
    first_error: FirstError | None
