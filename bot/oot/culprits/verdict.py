"""What a search came to, in words for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import text
from bot.core.escaping import one_line, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.culprits.tables import BisectRow

NAME_MOST = 120  # characters of a job or test in a sentence
SHAS_MOST = 4  # commits named in a sentence


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """The commits of which one is the culprit, and why there are several."""

    shas: tuple[str, ...]  # oldest first
    untestable: tuple[str, ...]  # among them
    why: str = ""  # these say nothing
    folded: int = 0  # among them, came with another one


def what_broke(search: BisectRow, label: str) -> str:
    """Return the signal in words: who, and which job or test."""
    name = search["test"] or search["job"]
    failure = f" (failure {search['signature'][:12]})" if search["signature"] else ""
    return f"{label}: {shorten(one_line(name), NAME_MOST)}{failure}"


def found_sentence(search: BisectRow, label: str) -> str:
    """Return the sentence that names the culprit, with its evidence."""
    sha, parent = search["culprit_sha"] or "", search["parent_sha"] or ""
    pull = f"#{search['pr_number']}" if search["pr_number"] else ""
    author = one_line(search["author"] or "")
    inside = ", ".join(part for part in (text.short(sha) if pull else "", author) if part)
    named = (pull or text.short(sha)) + (f" ({inside})" if inside else "")
    return (
        f"{what_broke(search, label)} is broken by {named}: "
        f"passed on its parent {text.short(parent)} in {text.plural(search['good_runs'], 'run')}, "
        f"failed here in {search['bad_runs']}."
    )


def range_sentence(search: BisectRow, label: str, suspects: Suspects) -> str:
    """Return the sentence that names several commits, one of which is the culprit."""
    shas = [text.short(sha) for sha in suspects.shas]
    some = (
        " or ".join(shas)
        if len(shas) <= SHAS_MOST
        else f"one of {len(shas)} commits, {shas[0]} to {shas[-1]}"
    )
    reasons = []
    if suspects.untestable:
        names = text.listing([text.short(sha) for sha in suspects.untestable], limit=SHAS_MOST)
        reasons.append(f"{names} {suspects.why or 'cannot be built'}")
    if suspects.folded:
        reasons.append(
            f"{text.plural(suspects.folded, 'commit')} came with another one and cannot be told apart"
        )
    why = "; ".join(reasons)
    return (
        f"{what_broke(search, label)} is broken by {some}{f': {why}' if why else ''} "
        f"(passed on {text.short(search['parent_sha'] or '')} in {text.plural(search['good_runs'], 'run')}, "
        f"failed on {text.short(search['culprit_sha'] or '')} in {search['bad_runs']})."
    )


def between(good: str, bad: str, count: int) -> str:
    """Return what is known of a search that ended early: where the culprit is."""
    if count <= 1:
        return f"it is between {text.short(good)} and {text.short(bad)}"
    return f"it is one of the {count} commits after {text.short(good)}, up to {text.short(bad)}"


def remaining(runs: int, rounds: int, median: float | None) -> str:
    """Return how many runs are left at most, and how long that takes by the median of one.

    >>> remaining(3, 2, 3600.0), remaining(1, 1, None)
    ('at most 3 more runs, about 2 h by the median of one', 'at most 1 more run')
    """
    words = f"at most {runs} more {'run' if runs == 1 else 'runs'}"
    return (
        words if median is None else f"{words}, about {text.duration(rounds * median)} by the median of one"
    )


def short_names(shas: Sequence[str]) -> str:
    """Return some commits by their short names."""
    return text.listing([text.short(sha) for sha in shas], limit=SHAS_MOST)
