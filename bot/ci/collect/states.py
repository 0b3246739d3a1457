"""The states of what is fetched, and their words for people."""

from __future__ import annotations

from enum import StrEnum

from bot.core import escaping

PATH_MOST = 120  # characters


class State(StrEnum):
    """How far the fetching of one log or artifact has come."""

    WANTED = "wanted"
    STORED = "stored"  # kept as a blob
    PARSED = "parsed"
    ABSENT = "absent"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    REFUSED = "refused"  # hostile
    BROKEN = "broken"
    FORBIDDEN = "forbidden"
    SKIPPED = "skipped"  # by the settings


FINAL = frozenset(State) - {State.WANTED, State.FORBIDDEN}
WORDS = {  # where no reason is stored
    State.WANTED: "being fetched",
    State.STORED: "stored",
    State.PARSED: "read",
    State.ABSENT: "GitHub had none",
    State.EXPIRED: "GitHub has deleted it",
    State.TOO_LARGE: "too large",
    State.REFUSED: "refused as hostile",
    State.BROKEN: "cannot be read",
    State.FORBIDDEN: "the App may not read Actions here",
    State.SKIPPED: "not wanted by the settings",
}
TRIES = 6  # of a download, for the words only: the queue never gives up by itself


def reason(state: str, stored: str | None, *, tries: int = 0) -> str:
    """Return what people read: the stored reason, else the state in words."""
    if state == State.WANTED and not stored and tries:
        return f"being fetched, try {tries} of {max(tries, TRIES)}"
    return stored or WORDS[State(state)]


def megabytes(size: int) -> str:
    """Return a size as people read it."""
    return f"{size / 1_000_000:,.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


def over_limit(size: int, most: int) -> str:
    """Return why something was not downloaded."""
    return f"{megabytes(size)}, limit {most // (1024 * 1024)} MiB"


def not_started(conclusion: str, path: str | None) -> str:
    """Return what is known of a run that ended before GitHub made its jobs; the path comes from outside.

    So does a workflow file end that GitHub cannot read or use. GitHub gives the reason on the run's page only: neither
    its webhooks nor its API have it. A run of a file that cannot be read has the file's path in place of a name.
    """
    shown = escaping.shorten(escaping.one_line(path or ""), PATH_MOST)
    outcome = escaping.one_line(conclusion.replace("_", " "))
    of_file = f" of {shown}" if shown else ""
    return f"{outcome}: no job{of_file} was started; only the run's page on GitHub says why"
