"""Mismatches between a report and our dispatch or the caller's token, as flags of the job's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.reports.report import Report
    from bot.oot.results.tables import DispatchRow

Flags = dict[str, Any]  # of a job: JSON
ENDING = "_mismatch"  # of the flags
NO_COMMIT = "0" * 40  # GitHub's SHA of a deleted ref, which dispatches have none for


def with_dispatch(dispatch: DispatchRow, report: Report) -> Flags:
    """Return a flag for every statement about the dispatch that is wrong."""
    echo = report.echo
    claimed = {
        "backend": (_folded(report.backend), dispatch["backend_key"]),
        "level": (_level(report.level), dispatch["level"]),
        "event_type": (report.event_type or None, dispatch["event_type"]),
        "upstream_repo": (_folded(echo.upstream_repo), dispatch["upstream_repo"].casefold()),
        "pr_number": (echo.pr_number, dispatch["pr_number"]),
        "head_sha": (echo.head_sha, dispatch["head_sha"] or NO_COMMIT),
        "labels": (echo.labels, frozenset(dispatch["labels"] or ())),
    }
    return flagged(name for name, (claim, ours) in claimed.items() if claim is not None and claim != ours)


def flagged(names: Iterable[str]) -> Flags:
    """Return the flags for fields that are wrong."""
    return {f"{name}{ENDING}": True for name in names}


def named(flags: Flags) -> list[str]:
    """Return the fields that were wrong, according to a row's flags."""
    return sorted(name.removesuffix(ENDING) for name in flags if name.endswith(ENDING))


def _folded(claim: Any) -> Any:
    return claim.casefold() if isinstance(claim, str) else claim


def _level(claim: Any) -> Any:
    """Return a level as we count it, also out of "L4"."""
    digits = claim.upper().removeprefix("L") if isinstance(claim, str) else ""
    return int(digits) if digits in {"1", "2", "3", "4"} else claim
