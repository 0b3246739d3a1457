"""The words of a text, as they are stored and looked for."""

from __future__ import annotations

import re

WORDS_MOST = 40  # of one text
LONGEST = 60  # bytes of one word
TEXT_MOST = 400  # characters that are kept of a text
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]+")


def words_of(text: str) -> set[bytes]:
    """Return the words of a text in lower case, names joined by underscores also in their parts."""
    found: dict[str, None] = {}
    for word in _WORD.findall(text[:TEXT_MOST].casefold()):
        found[word] = None
        found |= dict.fromkeys(_PART.findall(word))
    return {encode(word) for word in [*found][:WORDS_MOST]} - {b""}


def asked_words(text: str) -> list[bytes]:
    """Return the words that a search is for, each once."""
    return list(dict.fromkeys(encode(word) for word in _WORD.findall(text.casefold())))


def encode(word: str) -> bytes:
    """Return a word as it is stored: cut, never within a character."""
    return word.encode()[:LONGEST].decode(errors="ignore").encode()


def after(word: bytes) -> bytes:
    """Return what stands behind all words that begin with this one."""
    return word + b"\xff"  # is in no UTF-8


def begins_each(wanted: list[bytes], text: str) -> bool:
    """Whether each of these begins a word of a text."""
    known = words_of(text)
    return all(any(word.startswith(one) for word in known) for one in wanted)
