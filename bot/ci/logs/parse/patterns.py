r"""Patterns of rules, in RE2's syntax: checked, and rewritten so that one search covers many lines.

A rule speaks of one line. Over a block of lines its `^`, `$`, `\\A` and `\\z` have to mean the ends of a line, and
nothing in it may cross a line end (RE2's `never_nl`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import re2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BYTES_MOST = 2048
PROGRAM_MOST = 5000  # instructions; counted repetitions make a short pattern long
LINE_START, LINE_END = "(?m:^)", "(?m:$)"
# In front of a raw line stand its timestamp and what processes put there, see bot.ci.logs.parse.prefixes, and \r behind
# it. These are looser: each line found is cleaned and looked at again.
PREFIXES = (
    r"\([^)\n]*pid=\d+[^)\n]*\) ",
    r"(?:CRITICAL|ERROR|WARNING|INFO|DEBUG) [\d-]+ [\d:]+ \[[\w./-]+:\d+\] ",
    r"\[(?:rank|default)\d+\]: ?",
    r" *\[(?:junit|junitlauncher|testng|javac|java|exec)\] ?",
    r"#\d+ (?:\d+\.\d+ )?",
    r"[A-Za-z][\w.-]*[-_]\d+ +\| ",
    r"\[[@\w][\w./@-]*(?::[\w.-]+)+\] ",
    r"[@\w][\w./@-]*:[\w:.-]+: ",
    r"[\w@.-]+/[\w@./-]+ [\w:.-]+: ",
    r"[^\t\n]+\t[^\t\n]+\t\x{FEFF}?[0-9][0-9T:.\-]*Z ?",
    r"\[?[\dT][\dT.,:+Z -]*\]? ",
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d [\d:]+ ",
)
RAW_START = r"(?:(?m:^)(?:[0-9][0-9T:.\-]*Z )?(?:" + "|".join(PREFIXES) + ")*)"
RAW_END = r"(?:\r?(?m:$))"
SET_MEMORY = 32 * 1024 * 1024  # of each of the two sets of a ruleset


class PatternError(Exception):
    """A pattern that cannot be used; the message says why."""


def pattern_options(*, memory: int | None = None) -> Any:
    """Return RE2's options for patterns of rules."""
    made = re2.Options()
    made.never_nl = True
    made.log_errors = False
    if memory:
        made.max_mem = memory
    return made


def check_pattern(pattern: str, *, memory: int | None = None) -> None:
    """Raise PatternError if no rule may have this pattern."""
    if (size := len(pattern.encode("utf-8", "replace"))) > BYTES_MOST:
        raise PatternError(f"the pattern has {size:,} bytes, at most {BYTES_MOST:,} are allowed")
    try:
        made = re2.compile(pattern, pattern_options(memory=memory))
        over_lines = for_block(pattern, memory=memory)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise PatternError(f"RE2 cannot use the pattern: {words}") from None
    if made.search("") is not None:
        raise PatternError("the pattern matches the empty string, so it would match every line")
    if made.programsize > PROGRAM_MOST or over_lines.programsize > PROGRAM_MOST:
        raise PatternError("the pattern is too large: its counted repetitions multiply")


def for_block(pattern: str, *, memory: int | None = None) -> Any:
    """Return the pattern compiled for searching in cleaned lines, one or many."""
    return re2.compile(_rewritten(pattern, LINE_START, LINE_END), pattern_options(memory=memory))


def make_set(patterns: Sequence[str], *, memory: int = SET_MEMORY, raw: bool = False) -> Any:
    """Return a set that finds in one pass which patterns match in cleaned lines. Its last index is always found.

    In `raw` lines it finds which may match once they are cleaned.

    None where the patterns are too large together.
    """
    made = re2.Set.SearchSet(pattern_options(memory=memory))
    start, end = (RAW_START, RAW_END) if raw else (LINE_START, LINE_END)
    for pattern in patterns:
        made.Add(_rewritten(pattern, start, end))
    made.Add(LINE_START)
    try:
        made.Compile()
    except re2.error:
        return None
    return made


def _rewritten(pattern: str, start: str, end: str) -> str:
    """Return the pattern with its anchors replaced."""
    ends = {"^": start, r"\A": start, "$": end, r"\z": end}
    return "".join(ends.get(token, token) for token in _tokens(pattern))


def _tokens(pattern: str) -> Iterator[str]:
    """Cut a pattern into anchors and other pieces: escapes, classes, quoted text and single characters."""
    at = 0
    while at < len(pattern):
        stop = _token_end(pattern, at)
        yield pattern[at:stop]
        at = stop


def _token_end(pattern: str, at: int) -> int:
    if pattern.startswith(r"\Q", at):
        closing = pattern.find(r"\E", at)
        return len(pattern) if closing < 0 else closing + 2
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return _class_end(pattern, at)
    return at + 1


def _class_end(pattern: str, at: int) -> int:
    """Return where the class that begins at `at` ends; a `]` right at its beginning is a member."""
    at += 2 if pattern.startswith("[^", at) else 1
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at) and (closing := pattern.find(":]", at + 2)) > 0:
            at = closing + 2
        else:
            at += 2 if pattern[at] == "\\" else 1
    return at + 1
