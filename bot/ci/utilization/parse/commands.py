"""Which commands ran? Numbered in the order they were first seen, without the secrets on their command lines."""

from __future__ import annotations

from typing import Any

import re2

from bot.core.secret_patterns import PRIVATE_KEY, TOKENS

LENGTH_MOST = 512
DISTINCT_MOST = 2_000
RECORD_MOST = 256  # commands of one record
SEEN_MOST = 4_000
MASK = "***"


class Commands:
    """The distinct commands of one log."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.flags: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # as written in the log
        self._sets: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._secret = re2.compile("|".join((*TOKENS, rf"(?s){PRIVATE_KEY}.*")))

    def of_record(self, names: Any) -> tuple[int, ...]:
        """Return the numbers of a record's commands, each once."""
        if not isinstance(names, list):
            return ()
        if len(names) > RECORD_MOST:
            self.flags.add("commands_left_out")
        numbers = [self._number(name) for name in names[:RECORD_MOST] if isinstance(name, str)]
        found = tuple(dict.fromkeys(number for number in numbers if number is not None))
        if len(self._sets) >= SEEN_MOST:
            self._sets.clear()
        return self._sets.setdefault(found, found)

    def _number(self, written: str) -> int | None:
        if (known := self._seen.get(written)) is not None:
            return known
        name = self.masked(written)[:LENGTH_MOST]
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) == DISTINCT_MOST:
                self.flags.add("commands_left_out")
                return None
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        if len(self._seen) < SEEN_MOST:
            self._seen[written] = number
        return number

    def masked(self, written: str) -> str:
        """Return a command without the secrets in it."""
        text = written.encode("utf-8", "replace").decode()
        masked: str = self._secret.sub(MASK, text)
        if masked != text:
            self.flags.add("secrets_masked")
        return masked
