"""A raw line of a log as rules see it: without its timestamp and without escape sequences.

No stdlib `re` here, nor anywhere else where text of a log is read: RE2 and plain searches take linear time.
"""

from __future__ import annotations

from datetime import UTC, datetime

import re2

from bot.core.json_fields import LATEST

BOM = b"\xef\xbb\xbf"
ESCAPE = b"\x1b"
DIGITS = bytes.maketrans(b"123456789", b"000000000")
TO_SECONDS = b"0000-00-00T00:00:00"
USUAL = TO_SECONDS + b".0000000Z "  # as GitHub's runners write it
FRACTION_MOST = 9
STAMP, STAMP_END, STAMP_MOST = b"\x1b_bk;t=", b"\x07", 32  # Buildkite's: epoch milliseconds between the two
# a control sequence; an operating system or application command, as hyperlinks and Buildkite's times are; any other
# sequence of two characters
SEQUENCE = re2.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\\]^_])",
)
C1 = re2.compile(rb"[\x{80}-\x{9f}]")
REMOVED = b"\xff"  # in no UTF-8, so what stood beside a removed sequence forms no other one with it
DISTINCT_MOST = 6  # sequences that are removed everywhere at once; further ones one by one
PARTS = frozenset((b"\x1b]", b"\x1b_", b"\x1b\\"))  # sequences that may also begin or end a longer one


def valid(raw: bytes) -> bytes:
    """Return the text with U+FFFD in place of bytes that are not UTF-8."""
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def timestamp_length(line: bytes) -> int:
    """Return the length of the timestamp that a line begins with, its space included; 0 where there is none."""
    head = line[: len(USUAL) + 2].translate(DIGITS)
    if head.startswith(USUAL):
        return len(USUAL)
    if not head.startswith(TO_SECONDS):
        return _stamp_length(line) if line.startswith(STAMP) else 0
    at = len(TO_SECONDS)
    if head[at : at + 1] == b".":
        end = at + 1
        while head[end : end + 1] == b"0" and end - at <= FRACTION_MOST:
            end += 1
        at = end if end > at + 1 else at
    return at + 2 if head[at : at + 2] == b"Z " else 0


def _stamp_length(line: bytes) -> int:
    end = line.find(STAMP_END, len(STAMP), STAMP_MOST)
    return end + 1 if line[len(STAMP) : end].isdigit() and end > 0 else 0


def time_of(line: bytes) -> int | None:
    """Return the time that a line begins with, in epoch milliseconds."""
    if not (length := timestamp_length(line)):
        return None
    if line.startswith(STAMP):
        at = int(line[len(STAMP) : length - 1])
        return at if at < LATEST else None
    stamp = line[: length - 2].decode()
    try:
        seconds = datetime.fromisoformat(stamp[: len(TO_SECONDS)]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return int(seconds) * 1000 + int((stamp[len(TO_SECONDS) + 1 :] + "000")[:3])


def clean(line: bytes) -> bytes:
    """Return one raw line, without its line end, as rules see it."""
    text = valid(line)
    return without_escapes(text[timestamp_length(text) :])


def clean_block(raw: bytes, *, first: bool = False) -> bytes:
    """Return a block of whole lines as rules see them; the `first` block of a log may begin with a BOM."""
    if first:
        raw = raw.removeprefix(BOM)
    return without_escapes(without_timestamps(valid(raw).replace(b"\r\n", b"\n")))


def without_colours(raw: bytes, *, first: bool = False) -> bytes:
    """Return a block of whole lines without escape sequences and carriage returns at line ends, times included."""
    text = raw.removeprefix(BOM) if first else raw
    return without_escapes(valid(text).replace(b"\r\n", b"\n"))


def without_timestamps(text: bytes) -> bytes:
    """Return lines without the timestamps that they begin with."""
    lines, length = text.split(b"\n"), len(USUAL)
    zeros = text.translate(DIGITS)
    unstamped = 0 if lines[-1] else 1  # behind the last line end
    if zeros.startswith(USUAL) and zeros.count(b"\n" + USUAL) == len(lines) - 1 - unstamped:
        return b"\n".join([line[length:] for line in lines])  # the usual case, without a look at each line
    return b"\n".join(
        [
            line[length if zero.startswith(USUAL) else timestamp_length(line) :]
            if zero[:5] == b"0000-" or zero.startswith(STAMP)
            else line
            for line, zero in zip(lines, zeros.split(b"\n"), strict=True)
        ]
    )


def without_escapes(text: bytes) -> bytes:
    """Return valid UTF-8 without ANSI escape sequences. None of them contains a line end."""
    text = _c1_as_escapes(text)
    if ESCAPE not in text:
        return text
    if any(part in text for part in PARTS):
        return b"".join([text[start:end] for start, end in kept_spans(text)])
    found, distinct = SEQUENCE.search(text), 0
    while found and distinct < DISTINCT_MOST:
        text = text.replace(found.group(), REMOVED * len(found.group()))  # a log has few different ones
        found, distinct = SEQUENCE.search(text, found.start()), distinct + 1
    if found:
        first, *rest = text.split(ESCAPE)
        text = b"".join([first, *[_without_sequence(ESCAPE + part) for part in rest]])
    return text.translate(None, REMOVED)


def _without_sequence(text: bytes) -> bytes:
    found = SEQUENCE.match(text)
    return text[found.end() :] if found else text


def kept_spans(text: bytes) -> list[tuple[int, int]]:
    """Return the parts of a text that belong to no escape sequence, as offsets."""
    text = _c1_as_escapes(text)
    spans, start = [], 0
    while found := SEQUENCE.search(text, start):
        spans.append((start, found.start()))
        start = found.end()
    return [*spans, (start, len(text))]


def _c1_as_escapes(text: bytes) -> bytes:
    """Write the control characters U+0080 to U+009F as the escape sequences they stand for, which are as long."""
    if text.isascii() or b"\xc2" not in text:
        return text
    found = C1.search(text)
    while found:  # at most 32 different ones: C2 begins many other characters, such as a no-break space
        low = found.group()[1]
        text = text.replace(bytes((0xC2, low)), bytes((0x1B, low - 0x40)))
        found = C1.search(text, found.start())
    return text
