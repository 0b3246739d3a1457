"""Raw lines of a log as rules see them: without timestamps, escape sequences and prefixes; secrets masked.

No stdlib `re` here, nor anywhere else where text of a log is read: RE2 and plain searches take linear time.
Secrets are those that GitHub did not mask, because it does not know them; they are replaced before anything
is stored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import re2

from bot.core.json_fields import LATEST
from bot.core.masking import PRIVATE_KEY, TOKENS
from bot.evidence.logs.parse import rulesets

if TYPE_CHECKING:
    from collections.abc import Iterator

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
DISTINCT_SEQUENCES_MOST = 6  # sequences that are removed everywhere at once; further ones one by one
SEQUENCE_ENDS = frozenset(
    (b"\x1b]", b"\x1b_", b"\x1b\\")
)  # sequences that may also begin or end a longer one
DISTINCT_PREFIXES_MOST = 4  # beyond, each line is looked at by itself
TASK = rb"(?:build|test|lint|check|ci|e2e|unit|type-?check|check-types|compile|coverage|dev|format|prepare)[\w:.-]*"
PREFIX_KINDS = (
    rb"\((?:[\w.:=/ -]{1,80} )?pid=\d+[^)\n]{0,80}\) ",  # (EngineCore_DP0 pid=411)
    rb"(?:CRITICAL|ERROR|WARNING|INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]+:\d+\] ",
    rb"\[(?:rank|default)\d+\]: ?",
    rb" *\[(?:junit|junitlauncher|testng|javac|java|exec)\] ?",
    rb"#\d+ (?:\d+\.\d+ )?",  # BuildKit
    rb"[A-Za-z][\w.-]*[-_]\d+ +\| ",  # docker compose
    rb"\[[@\w][\w./@-]*(?::[\w.-]+)+\] ",  # [backend:ci]
    rb"[@\w][\w./@-]*:" + TASK + rb": ",
    rb"[\w@.-]+/[\w@./-]+ " + TASK + rb": ",
    rb"[^\t\n]{1,200}\t[^\t\n]{1,200}\t\x{FEFF}?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ?",
    rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? ",
    rb"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]? ",
    rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d ",
)
PREFIX = re2.compile(rb"(?m:^)(?:" + rb"|".join(PREFIX_KINDS) + rb")+")
MASK = b"***"
KEY_TEXT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\-\r")
KEY_HEADERS = (b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:", b"Hash:")
KEY_LINES = 200  # of one key; of a longer one the rest is no key
# in front of a line of a key: quotes and bars, and its number, as `cat -n`, `grep -n` and diffs print them
DECORATION = re2.compile(rb"^[\s>|'\"`,+]*(?:\d{1,5}[:|.)\s]\s*)?[\s>|'\"`]*")
BEHIND = b" \t\r'\"`,;"
Span = tuple[int, int]


def valid_utf8(raw: bytes) -> bytes:
    """Replace bytes that are not UTF-8 by U+FFFD."""
    if raw.isascii():
        return raw
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode()
    return raw


def timestamp_length(line: bytes) -> int:
    """Return the length of the timestamp at the start of a line, its space included, or 0."""
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
    """Return the time at the start of a line, in epoch milliseconds, or None."""
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


def clean_line(line: bytes) -> bytes:
    """Return one raw line, without its line end, as rules see it."""
    text = valid_utf8(line)
    return without_escapes(text[timestamp_length(text) :])


def clean_block(raw: bytes, *, first: bool = False) -> bytes:
    """Return a block of whole lines as rules see them; the `first` block of a log may begin with a BOM."""
    if first:
        raw = raw.removeprefix(BOM)
    return without_escapes(without_timestamps(valid_utf8(raw).replace(b"\r\n", b"\n")))


def without_colours(raw: bytes, *, first: bool = False) -> bytes:
    """Return a block of whole lines without escape sequences and carriage returns at line ends, times included."""
    text = raw.removeprefix(BOM) if first else raw
    return without_escapes(valid_utf8(text).replace(b"\r\n", b"\n"))


def without_timestamps(text: bytes) -> bytes:
    """Remove the timestamps at the start of lines."""
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
    """Remove ANSI escape sequences, none of which contains a line end, from valid UTF-8."""
    text = _c1_as_escapes(text)
    if ESCAPE not in text:
        return text
    if any(part in text for part in SEQUENCE_ENDS):
        return b"".join([text[start:end] for start, end in kept_spans(text)])
    sequence, distinct = SEQUENCE.search(text), 0
    while sequence and distinct < DISTINCT_SEQUENCES_MOST:
        text = text.replace(sequence.group(), REMOVED * len(sequence.group()))  # a log has few different ones
        sequence, distinct = SEQUENCE.search(text, sequence.start()), distinct + 1
    if sequence:
        first, *rest = text.split(ESCAPE)
        text = b"".join([first, *[_without_sequence(ESCAPE + part) for part in rest]])
    return text.translate(None, REMOVED)


def _without_sequence(text: bytes) -> bytes:
    sequence = SEQUENCE.match(text)
    return text[sequence.end() :] if sequence else text


def kept_spans(text: bytes) -> list[tuple[int, int]]:
    """Return as offsets the parts of a text outside of escape sequences."""
    text = _c1_as_escapes(text)
    spans, start = [], 0
    while sequence := SEQUENCE.search(text, start):
        spans.append((start, sequence.start()))
        start = sequence.end()
    return [*spans, (start, len(text))]


def _c1_as_escapes(text: bytes) -> bytes:
    """Write the control characters U+0080 to U+009F as the escape sequences of equal length they stand for."""
    if text.isascii() or b"\xc2" not in text:
        return text
    character = C1.search(text)
    while character:  # at most 32 different ones: C2 begins many other characters, such as a no-break space
        low = character.group()[1]
        text = text.replace(bytes((0xC2, low)), bytes((0x1B, low - 0x40)))
        character = C1.search(text, character.start())
    return text


def without_prefixes(text: bytes) -> bytes:
    """Remove from cleaned lines what processes put in front of them."""
    prefix, distinct = PREFIX.search(text), 0
    if not prefix:
        return text
    text = b"\n" + text
    prefix = PREFIX.search(text)
    while (
        prefix and distinct < DISTINCT_PREFIXES_MOST
    ):  # a log has few different ones, unless they hold times
        text = text.replace(b"\n" + prefix.group(), b"\n")
        prefix, distinct = PREFIX.search(text, prefix.start()), distinct + 1
    return (PREFIX.sub(b"", text) if prefix else text)[1:]


def prefix_length(line: bytes) -> int:
    """Return the length of what a process put in front of a cleaned line."""
    prefix = PREFIX.match(line)
    return prefix.end() if prefix else 0


class Masking:
    """Masks the blocks of one log in order; a private key may span two of them."""

    def __init__(self) -> None:
        self.masked = 0  # secrets so far
        self._secret = re2.compile("|".join((*TOKENS, PRIVATE_KEY)), _longest_match())
        self._key_lines = 0  # of a key that is not at its end

    def block(self, raw: bytes) -> bytes:
        """Mask the secrets in a block of whole lines."""
        text = valid_utf8(raw)
        cleaned = without_escapes(text)
        if not self._key_lines and self._secret.search(cleaned) is None:
            return raw
        lines, plain = text.split(b"\n"), cleaned.split(b"\n")
        last = len(plain) - (not plain[-1])  # behind the last line end there is no line
        wanted = self._numbers(cleaned)
        secret_line, number = next(wanted, last), 0
        while number < last:
            if not self._key_lines:
                number = max(number, secret_line)
                if number >= last:
                    break
            while secret_line <= number < last:
                secret_line = next(wanted, last)
            spans = self._spans(plain[number])
            lines[number] = _replaced(lines[number], spans)
            number += 1
        return b"\n".join(lines)

    def _numbers(self, cleaned: bytes) -> Iterator[int]:
        """Yield the numbers, from 0, of lines that hold a secret or the start of a key."""
        number, at = 0, 0
        while secret := self._secret.search(cleaned, at):
            number += cleaned.count(b"\n", at, secret.start())
            yield number
            end = cleaned.find(b"\n", secret.start())
            if end < 0:
                return
            number, at = number + 1, end + 1

    def _spans(self, line: bytes) -> list[Span]:
        """Return the parts of a line without colours that are to be masked."""
        at, spans = 0, list[Span]()
        if self._key_lines:
            inside = self._inside_key(line)
            if inside is not None:
                return inside
        while secret := self._secret.search(line, at):
            self.masked += 1
            at = secret.end()
            if secret.group().startswith(b"-----BEGIN"):
                self._key_lines = KEY_LINES
                at += self._length_of_key(line[at:])
            spans.append((secret.start(), at))
        return spans

    def _inside_key(self, line: bytes) -> list[Span] | None:
        """Return the parts of a line inside a key that are to be masked, or None if the key ended before it."""
        start = timestamp_length(line)
        start += prefix_length(line[start:])
        start += DECORATION.search(line[start:]).end()
        body = line[start:].rstrip(BEHIND)
        self._key_lines -= 1
        ends = b"-----END" in body
        if not (ends or body.startswith(KEY_HEADERS) or KEY_TEXT.issuperset(body)):
            self._key_lines = 0
            return None
        if ends:
            self._key_lines = 0
        return [(start, start + len(body))] if body else []

    def _length_of_key(self, rest: bytes) -> int:
        """Return how much of a line belongs to the key that began on it: the whole key if its line ends are escaped."""
        inner = rest.rstrip(BEHIND)
        end = inner.find(b"-----END")
        stop = inner.find(b"-----", end + 8) + 5 if end >= 0 else 0
        if stop > 5:
            self._key_lines = 0
            return stop
        length = next((n for n, byte in enumerate(inner) if byte not in KEY_TEXT), len(inner))
        if length < len(inner):
            self._key_lines = 0
        return length


def _replaced(raw: bytes, spans: list[Span]) -> bytes:
    """Mask parts of a raw line, given as offsets in the line without colours."""
    if not spans:
        return raw
    places = [at for start, end in kept_spans(raw) for at in range(start, end)]
    for start, end in reversed(spans):
        if start < end:
            raw = raw[: places[start]] + MASK + raw[places[end - 1] + 1 :]
    return raw


def _longest_match() -> Any:
    options = rulesets.pattern_options()
    options.longest_match = True
    return options
