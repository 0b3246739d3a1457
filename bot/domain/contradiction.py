"""What does a report say that is not so? Compared with our dispatch and the caller's token; flags of its row tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.wire import Report

Row = dict[str, Any]
ENDING = "_mismatch"  # of the flags


def with_dispatch(dispatch: Row, report: Report) -> Row:
    """Return a flag for everything the report says of its dispatch that is not so."""
    echo = report.echo
    said = {
        "backend": (_folded(report.backend), dispatch["backend_key"]),
        "level": (_level(report.level), dispatch["level"]),
        "event_type": (report.event_type or None, dispatch["event_type"]),
        "upstream_repo": (_folded(echo.upstream_repo), dispatch["upstream_repo"].casefold()),
        "pr_number": (echo.pr_number, dispatch["pr_number"]),
        "head_sha": (echo.head_sha, dispatch["head_sha"]),
        "labels": (echo.labels, frozenset(dispatch["labels"] or ())),
    }
    return flagged(name for name, (told, ours) in said.items() if told is not None and told != ours)


def flagged(names: Iterable[str]) -> Row:
    """Return the flags of what was said wrongly."""
    return {f"{name}{ENDING}": True for name in names}


def named(flags: Row) -> list[str]:
    """Return what was said wrongly, out of a row's flags."""
    return sorted(name.removesuffix(ENDING) for name in flags if name.endswith(ENDING))


def _folded(said: Any) -> Any:
    return said.casefold() if isinstance(said, str) else said


def _level(said: Any) -> Any:
    """Return a level as we count it, also out of "L4"."""
    digits = said.upper().removeprefix("L") if isinstance(said, str) else ""
    return int(digits) if digits in {"1", "2", "3", "4"} else said
