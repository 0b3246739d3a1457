"""Which of a webhook's headers are worth keeping? Never a signature, never a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.domain.reading import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = (
    "X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID",
    "X-GitHub-Hook-Installation-Target-Type", "X-GitHub-Enterprise-Host", "X-GitHub-Enterprise-Version",
    "User-Agent",
)  # fmt: skip
LONGEST = 200  # characters of a value


def worth_keeping(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those of KEPT that are there, cut and cleaned for any database."""
    return {name: clean(value[:LONGEST]) for name in KEPT if (value := headers.get(name))}
