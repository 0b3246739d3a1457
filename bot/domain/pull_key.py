"""What names a pull request in one text: the key of the tasks about it, `owner/repo#number`."""

from __future__ import annotations


def of(repo: str, number: int) -> str:
    """Return the key of a pull request."""
    return f"{repo}#{number}"


def parse(key: str) -> tuple[str, int]:
    """Return repository and number; raises ValueError."""
    repo, _, number = key.rpartition("#")
    if not repo or not number.isdigit():
        raise ValueError(f"{key!r} names no pull request")
    return repo, int(number)
