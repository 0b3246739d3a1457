"""Artifacts in words, for pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.json_fields import iso_time

if TYPE_CHECKING:
    from bot.ci.collect.tables import ArtifactRow

SMALLEST_CHANGE = 0.01  # below one percent nothing is said


def describe_change(base: int, size: int) -> str:
    """Return how a size compares with its base, empty where it hardly differs."""
    share = size / base - 1 if base else 0.0
    if abs(share) < SMALLEST_CHANGE:
        return ""
    return f"{'grew' if share > 0 else 'shrank'} {abs(share):.0%} against the base".replace("%", " %")


def describe_artifact(artifact: ArtifactRow, *, changed: str = "") -> str:
    """Return an artifact in one line."""
    parts = [artifact["name"], size_in_words(artifact["size_in_bytes"])]
    if artifact["expired"]:
        parts.append("expired")
    elif artifact["expires_at"] is not None:
        parts.append(f"until {iso_time(artifact['expires_at'])[:10]}")
    return " · ".join([*parts, *([changed] if changed else [])])


def size_in_words(size: int) -> str:
    """Return a size as people read it."""
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def page_url(github: str, repo: str, artifact: ArtifactRow) -> str:
    """Return GitHub's page from which a person downloads an artifact."""
    return f"{github}/{repo}/actions/runs/{artifact['run_id']}/artifacts/{artifact['id']}"
