"""The options of lists about tests."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core.settings import option

LONGEST = 255  # characters of a branch


def branch(text: str) -> str:
    """Read the name of a branch."""
    if not text or text.split() != [text] or len(text) > LONGEST:
        raise ValueError("write the name of one branch")
    return text


@dataclass(frozen=True, kw_only=True)
class TimesSettings:
    """Where times of tests come from."""

    ci_times_branch: str | None = option(
        "Branch whose newest commits say how long tests take, such as viable/strict; unset: the newest trusted "
        "commits nine tenths of whose jobs have ended.",
        branch,
        default=None,
    )
