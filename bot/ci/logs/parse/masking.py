"""Secrets in logs that GitHub did not mask, because it does not know them: replaced before anything is stored.

They are looked for in lines without colours, and replaced in the raw ones, colours inside them included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import re2

from bot.ci.logs.parse import patterns
from bot.ci.logs.parse.cleaning import kept_spans, timestamp_length, valid, without_escapes
from bot.ci.logs.parse.prefixes import prefix_length
from bot.core.secret_patterns import PRIVATE_KEY, TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK = b"***"
KEY_TEXT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\-\r")
KEY_HEADERS = (b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:", b"Hash:")
KEY_LINES = 200  # of one key; of a longer one the rest is no key
# in front of a line of a key: quotes and bars, and its number, as `cat -n`, `grep -n` and diffs print them
DECORATION = re2.compile(rb"^[\s>|'\"`,+]*(?:\d{1,5}[:|.)\s]\s*)?[\s>|'\"`]*")
BEHIND = b" \t\r'\"`,;"
Span = tuple[int, int]


class Masking:
    """Masks the blocks of one log in order; a private key may span two of them."""

    def __init__(self) -> None:
        self.masked = 0  # secrets so far
        self._secret = re2.compile("|".join((*TOKENS, PRIVATE_KEY)), _longest())
        self._key_lines = 0  # of a key that is not at its end

    def block(self, raw: bytes) -> bytes:
        """Return a block of whole lines without the secrets in it."""
        text = valid(raw)
        cleaned = without_escapes(text)
        if not self._key_lines and self._secret.search(cleaned) is None:
            return raw
        lines, plain = text.split(b"\n"), cleaned.split(b"\n")
        last = len(plain) - (not plain[-1])  # behind the last line end there is no line
        wanted = self._numbers(cleaned)
        found, number = next(wanted, last), 0
        while number < last:
            if not self._key_lines:
                number = max(number, found)
                if number >= last:
                    break
            while found <= number < last:
                found = next(wanted, last)
            spans = self._spans(plain[number])
            lines[number] = _replaced(lines[number], spans)
            number += 1
        return b"\n".join(lines)

    def _numbers(self, cleaned: bytes) -> Iterator[int]:
        """Yield the lines that hold a secret, or the beginning of a key, counted from 0."""
        number, at = 0, 0
        while found := self._secret.search(cleaned, at):
            number += cleaned.count(b"\n", at, found.start())
            yield number
            end = cleaned.find(b"\n", found.start())
            if end < 0:
                return
            number, at = number + 1, end + 1

    def _spans(self, line: bytes) -> list[Span]:
        """Return what is to be masked of a line without colours."""
        at, spans = 0, list[Span]()
        if self._key_lines:
            inside = self._inside_key(line)
            if inside is not None:
                return inside
        while found := self._secret.search(line, at):
            self.masked += 1
            at = found.end()
            if found.group().startswith(b"-----BEGIN"):
                self._key_lines = KEY_LINES
                at += self._length_of_key(line[at:])
            spans.append((found.start(), at))
        return spans

    def _inside_key(self, line: bytes) -> list[Span] | None:
        """Return what is to be masked of a line inside a key, None where the key is at its end before it."""
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
        """Return how much of a line belongs to the key that began on it: all, if its line ends are escaped."""
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
    """Return a raw line with parts masked that are given as offsets in the line without colours."""
    if not spans:
        return raw
    places = [at for start, end in kept_spans(raw) for at in range(start, end)]
    for start, end in reversed(spans):
        if start < end:
            raw = raw[: places[start]] + MASK + raw[places[end - 1] + 1 :]
    return raw


def _longest() -> Any:
    options = patterns.pattern_options()
    options.longest_match = True
    return options
