"""Is a pull request a contribution of somebody outside, and was it merged? Pure, with the options that decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import setting_types
from bot.core.settings import option

if TYPE_CHECKING:
    from bot.ci.extras.contributions.tables import ContributionRow
    from bot.ingest.rows import PullRow

DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
REVERTED = "Reverted"
BOT = "[bot]"
OPEN, MERGED = "open", "merged"


@dataclass(frozen=True, kw_only=True)
class ContributionSettings:
    """Whose pull requests are contributions, and which are merged."""

    ci_merged_labels: tuple[str, ...] = option(
        "Labels of closed pull requests that a bot merged without GitHub's knowing; one with the label Reverted "
        "was not.",
        setting_types.words,
        default=("Merged",),
    )
    ci_external_label: str | None = option(
        "Label of pull requests of outside people; unset: GitHub's author association says who is outside.",
        str.strip,
        default=None,
    )
    ci_bots: tuple[str, ...] = option(
        "Logins that are no people, beside those that end in [bot].",
        setting_types.words,
        default=(),
    )
    ci_contributors: str = option(
        "Whether the JSON of contributions has logins: counts (no), names (yes, of public repositories).",
        setting_types.one_of("counts", "names"),
        default="counts",
    )


def describe(
    pull: PullRow, settings: ContributionSettings, reviewed_at: int | None
) -> ContributionRow | None:
    """Return a pull request as a contribution; None where it is none, or is neither open nor merged."""
    login, created_at = pull["user_login"], pull["created_at"]
    if (
        login is None
        or created_at is None
        or pull["number"] is None
        or not _is_outside(pull, login, settings)
    ):
        return None
    merged_at = _merged_at(pull, settings)
    if merged_at is None and (pull["state"] != OPEN or pull["draft"]):
        return None
    return {
        "repository_id": pull["repository_id"],
        "number": pull["number"],
        "login": login,
        "state": OPEN if merged_at is None else MERGED,
        "created_at": created_at,
        "day": None if merged_at is None else merged_at // DAY,
        "merged_at": merged_at,
        "reviewed_at": reviewed_at,
    }


def _is_outside(pull: PullRow, login: str, settings: ContributionSettings) -> bool:
    if login.endswith(BOT) or login.casefold() in {one.casefold() for one in settings.ci_bots}:
        return False
    if settings.ci_external_label:
        return settings.ci_external_label in (pull["labels"] or ())
    return pull["author_association"] is not None and pull["author_association"] not in MEMBERS


def _merged_at(pull: PullRow, settings: ContributionSettings) -> int | None:
    labels = set(pull["labels"] or ())
    if REVERTED in labels:
        return None
    if pull["merged_at"] is not None:
        return pull["merged_at"]
    closed = pull["state"] == "closed" and labels & set(settings.ci_merged_labels)
    return pull["closed_at"] if closed else None


def hours_between(start: int, end: int) -> float:
    """Return how long something took, to a tenth of an hour."""
    return round(max(end - start, 0) / HOUR, 1)
