"""What is one fault of the suite, and what did a trial of it find?"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

FORMS = ("default", "nightly")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One way to break things. `times` says how often it is done in the default and in the nightly form."""

    id: str
    breaks: str  # what is broken, for a table
    measures: str  # what the percentiles are of
    times: tuple[int, int]
    run: Callable[[Trial], Awaitable[None]]
    database: str = "sqlite"  # or postgres

    def n(self, form: str) -> int:
        """How often it is done in that form."""
        return self.times[FORMS.index(form)]


@dataclass(kw_only=True)
class Trial:
    """One run of a scenario: what it may use, and what it finds."""

    n: int
    seed: str
    folder: Path
    server: object = None  # the PostgreSQL server, where the scenario wants one
    database_url: str | None = None  # None: SQLite in the folder
    quiet: bool = False
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # what the percentiles are of
    counts: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.chance = random.Random(self.seed)
        self._said = time.monotonic()

    def expect(self, holds, what):
        """Keep a failure unless this holds."""
        if not holds:
            self.failures.append(what)

    def same(self, found, wanted, what):
        """Keep a failure unless both are the same."""
        self.expect(found == wanted, f"{what}: {str(found)[:500]} instead of {str(wanted)[:500]}")

    def say(self, text, *, every=5.0):
        """Tell whoever watches, at most once in so many seconds."""
        if not self.quiet and time.monotonic() - self._said >= every:
            self._said = time.monotonic()
            sys.stderr.write(f"    {text}\n")
            sys.stderr.flush()


async def until(condition, *, seconds, every=0.05):
    """Look at a condition, awaited where it has to be, until it is true; returns its value, false when time is up."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value or time.monotonic() > end:
            return value
        await asyncio.sleep(every)  # other processes are at work


def percentile(values, share):
    """Return the value that so many percent do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]
