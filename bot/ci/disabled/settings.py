"""The options of disabled tests and jobs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.settings import option


@dataclass(frozen=True, kw_only=True)
class DisabledSettings:
    """Whose issues disable tests and jobs."""

    ci_disable_authors: tuple[str, ...] = option(
        "Logins whose DISABLED and UNSTABLE issues count beside those of people with write access, such as an "
        "App's: my-app[bot]; comma separated.",
        setting_types.words,
        default=(),
    )
