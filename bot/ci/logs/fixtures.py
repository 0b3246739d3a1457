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
from bot.ci.logs.parse.prefixes import prefix_length
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
    plain = plain_log(content)
    head = [content.split(b"\n", 1)[0]] if content.startswith(SOURCE) else []
    log = plain.split(b"\n")
    if hit := find_winner(PlainLog.of(plain), ruleset):
        number = hit.number - 1
        log[number] = MATCH + _annotated(log[number], hit.rule.pattern, last=hit.number == len(log))
    return b"\n".join((*head, *log))


def marked_line(content: bytes) -> str:
    """Return the line that a fixture marks, or words that it marks none."""
    found = next((line for line in content.split(b"\n") if line.startswith(MATCH)), None)
    return found.decode("utf-8", "replace") if found else "(no verdict)"


def plain_log(content: bytes) -> bytes:
    """Return a fixture's fragment of a log, without marks."""
    lines = content.split(b"\n")
    return b"\n".join([_plain(line) for line in lines[lines[0].startswith(SOURCE) :]])


def _plain(line: bytes) -> bytes:
    """Return a line without marks; where it has more closing ones than opening ones, the last ones are marks."""
    if not line.startswith(MATCH):
        return line
    parts = line.removeprefix(MATCH).split(CLOSE)
    own = len(parts) - 1 - line.count(OPEN)
    head = CLOSE.join(parts[: own + 1]) if own > 0 else parts[0]
    return (head + b"".join(parts[max(own, 0) + 1 :])).replace(OPEN, b"")


def _annotated(raw: bytes, pattern: str, *, last: bool) -> bytes:
    """Return a raw line with marks around what the pattern captures in the cleaned line."""
    body = raw if last else raw.removesuffix(b"\r")
    begin = timestamp_length(body)
    places = [begin + at for start, end in kept_spans(body[begin:]) for at in range(start, end)]
    places = places[prefix_length(bytes(body[at] for at in places)) :]
    found = patterns.for_block(pattern).search(bytes(body[at] for at in places))
    groups = range(1, len(found.groups()) + 1) if found.groups() else range(1)
    places.append(len(body))
    marks = []
    for start, end in (found.span(group) for group in groups if found.group(group) is not None):
        marks += [(places[start], True), (places[end - 1] + 1 if end > start else places[start], False)]
    for at, opens in sorted(marks, reverse=True):
        raw = raw[:at] + (OPEN if opens else CLOSE) + raw[at:]
    return raw
