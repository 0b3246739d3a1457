"""Which jobs of other CIs are trusted: the rule of upstream's own runs, by what its provider says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.settings import is_trusted_branch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.providers.tables import About


def is_trusted(job: About, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether a job ran on a trusted branch, and for no pull request: a fork may call its branch `main`."""
    if job["pr_number"] is not None or not job["branch"] or ":" in job["branch"]:  # owner:branch is a fork's
        return False
    return is_trusted_branch(job["branch"], default_branch=default_branch, patterns=patterns)
