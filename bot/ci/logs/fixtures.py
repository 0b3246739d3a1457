"""Fixtures of rulesets: fragments of logs that say themselves which line is to be found.

The winning line begins with `#=MATCH=# ` and has single angle quotes around what is captured; a fragment without such
a line expects no verdict. A first line `#=SOURCE=# address` says where the fragment is from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.logs.parse import patterns
from bot.ci.logs.parse.blocks import PlainLog
from bot.ci.logs.parse.classify import find_winner
from bot.ci.logs.parse.cleaning import kept_spans, timestamp_length, valid
from bot.core.errors import OotbotError

if TYPE_CHECKING:
    from bot.ci.logs.parse.rules import Ruleset

MATCH = b"#=MATCH=# "
SOURCE = b"#=SOURCE=# "
OPEN, CLOSE = "\u2039".encode(), "\u203a".encode()


def rendered(content: bytes, ruleset: Ruleset) -> bytes:
    """Return the fixture with its marks where the ruleset puts them now: equal to what it was if that is as before."""
    if valid(content) != content:
        raise OotbotError("it is not UTF-8")
    lines = [_plain(line) for line in content.split(b"\n")]
    head = lines[:1] if lines[0].startswith(SOURCE) else []
    log = lines[len(head) :]
    if hit := find_winner(PlainLog.of(b"\n".join(log)), ruleset):
        number = hit.number - 1
        log[number] = MATCH + _annotated(log[number], hit.rule.pattern, last=hit.number == len(log))
    return b"\n".join((*head, *log))


def marked_line(content: bytes) -> str:
    """Return the line that a fixture marks, or words that it marks none."""
    found = next((line for line in content.split(b"\n") if line.startswith(MATCH)), None)
    return found.decode("utf-8", "replace") if found else "(no verdict)"


def _plain(line: bytes) -> bytes:
    if not line.startswith(MATCH):
        return line
    return line.removeprefix(MATCH).replace(OPEN, b"").replace(CLOSE, b"")


def _annotated(raw: bytes, pattern: str, *, last: bool) -> bytes:
    """Return a raw line with marks around what the pattern captures in the cleaned line."""
    body = raw if last else raw.removesuffix(b"\r")
    begin = timestamp_length(body)
    places = [begin + at for start, end in kept_spans(body[begin:]) for at in range(start, end)]
    found = patterns.for_block(pattern).search(bytes(body[at] for at in places))
    groups = range(1, len(found.groups()) + 1) if found.groups() else range(1)
    places.append(len(body))
    marks = []
    for start, end in (found.span(group) for group in groups if found.group(group) is not None):
        marks += [(places[start], True), (places[end - 1] + 1 if end > start else places[start], False)]
    for at, opens in sorted(marks, reverse=True):
        raw = raw[:at] + (OPEN if opens else CLOSE) + raw[at:]
    return raw
