"""The options of logs."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.settings import option


@dataclass(frozen=True, kw_only=True)
class LogsSettings:
    """How logs are classified."""

    ci_log_rules: tuple[str, ...] = option(
        "Rules for logs in front of those that come with the program: paths, or owner/repo:path of a default branch, "
        "comma separated; the first has priority.",
        setting_types.words,
        default=(),
    )
