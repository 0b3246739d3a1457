"""The options of disabled tests and jobs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.settings import option


@dataclass(frozen=True, kw_only=True)
class DisabledSettings:
    """Whose issues disable tests and jobs, and whether more are suggested."""

    ci_disable: str = option(
        "Suggestions which tests to disable and which issues to close: off, or suggest (a page with links to new "
        "issues, filled in; the bot itself opens and closes none).",
        setting_types.one_of("off", "suggest"),
        default="off",
    )

    ci_disable_authors: tuple[str, ...] = option(
        "Logins whose DISABLED and UNSTABLE issues count beside those of people with write access, such as an "
        "App's: my-app[bot]; comma separated.",
        setting_types.words,
        default=(),
    )
