"""Secrets in logs that GitHub did not mask, because it does not know them: replaced before anything is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import re2

from bot.ci.logs.parse import patterns
from bot.ci.logs.parse.cleaning import timestamp_length, valid
from bot.core.secret_patterns import PRIVATE_KEY, TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK = b"***"
KEY_TEXT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\-\r")
KEY_HEADERS = (b"Proc-Type:", b"DEK-Info:")
KEY_LINES = 200  # of one key; of a longer one the rest is no key


class Masking:
    """Masks the blocks of one log in order; a private key may span two of them."""

    def __init__(self) -> None:
        self.masked = 0  # secrets so far
        self._token = re2.compile("|".join((*TOKENS, PRIVATE_KEY)), _longest())
        self._key_lines = 0  # of a key that is not at its end

    def block(self, raw: bytes) -> bytes:
        """Return a block of whole lines without the secrets in it."""
        text = valid(raw)
        if not self._key_lines and self._token.search(text) is None:
            return raw
        return b"".join(self._pieces(text))

    def _pieces(self, text: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(text):
            if self._key_lines:
                masked, at = self._line_of_key(text, at)
                yield masked
                continue
            found = self._token.search(text, at)
            if found is None:
                yield text[at:]
                return
            self.masked += 1
            yield text[at : found.start()] + MASK
            at = found.end()
            if found.group().startswith(b"-----BEGIN"):
                self._key_lines = KEY_LINES
                end = text.find(b"\n", at)
                rest = text[at : len(text) if end < 0 else end]
                at += self._length_of_key(rest)

    def _line_of_key(self, text: bytes, at: int) -> tuple[bytes, int]:
        """Return a line inside a key, masked, or nothing where the key is at its end; and where to go on."""
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end + 1
        line = text[at:end].rstrip(b"\r\n")
        length = timestamp_length(line)
        body, line_end = line[length:], text[at + len(line) : end]
        self._key_lines -= 1
        ends = body.startswith(b"-----END")
        if not (ends or body.startswith(KEY_HEADERS) or KEY_TEXT.issuperset(body.strip())):
            self._key_lines = 0
            return b"", at
        if ends:
            self._key_lines = 0
        return line[:length] + (MASK if body else b"") + line_end, end

    def _length_of_key(self, rest: bytes) -> int:
        """Return how much of a line belongs to the key that began on it: all, if its line ends are escaped."""
        inner = rest.rstrip(b"\r")
        end = inner.find(b"-----END")
        stop = inner.find(b"KEY-----", end) + 8 if end >= 0 else 0
        if stop > 8:
            self._key_lines = 0
            return stop
        length = next((n for n, byte in enumerate(inner) if byte not in KEY_TEXT), len(inner))
        if length < len(inner):
            self._key_lines = 0
        return length


def _longest() -> Any:
    options = patterns.pattern_options()
    options.longest_match = True
    return options
