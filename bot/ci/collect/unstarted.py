"""Runs that ended before GitHub made their jobs, as with a workflow file that it cannot read or use.

GitHub gives the reason on the run's page only: neither its webhooks nor its API have it, and there are no jobs, check
runs or logs. A run of a file that cannot be read has the file's path in place of a name.
"""

from __future__ import annotations

from bot.core import escaping

PATH_MOST = 120  # characters


def words(conclusion: str, path: str | None) -> str:
    """Return what is known of such a run, for people; the path comes from outside."""
    told = escaping.shorten(escaping.one_line(path or ""), PATH_MOST)
    outcome = escaping.one_line(conclusion.replace("_", " "))
    of_file = f" of {told}" if told else ""
    return f"{outcome}: no job{of_file} was started; only the run's page on GitHub says why"
