"""The commits of a search as a line, drawn so that a phone can read it: eight points a row, rows side by side."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from bot.core import text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.oot.culprits.search import Seen

State = Literal["good", "bad", "running", "skipped", "not_asked"]
ROW, STEP, HEIGHT, MIDDLE, RADIUS = 8, 45, 56, 20, 13
EACH_MOST = 32  # commits that are all drawn; of more, what was not asked is counted
POINTS_MOST = 120
MARKS: dict[State, tuple[str, str]] = {  # sign and tone
    "good": ("✓", "good"),
    "bad": ("✗", "bad"),
    "running": ("…", "wait"),
    "skipped": ("-", "warn"),
    "not_asked": ("", "idle"),
}
WORDS: dict[State, str] = {
    "good": "good", "bad": "bad", "running": "running", "skipped": "skipped", "not_asked": "not asked",
}  # fmt: skip


class Point(NamedTuple):
    """One commit on the line, or several that were not asked."""

    sha: str
    state: State
    commits: int = 1
    culprit: bool = False


def state_of(one: Seen) -> State:
    """Return what is shown of a commit."""
    if one.is_good:
        return "good"
    if one.is_bad:
        return "bad"
    if one.asked or one.pending:
        return "running"
    return "skipped" if one.is_left_alone or one.vain else "not_asked"


def points(seen: Sequence[Seen], culprits: Collection[str]) -> list[Point]:
    """Return the points of a line, oldest first."""
    fold = len(seen) > EACH_MOST
    found: list[Point] = []
    for one in seen:
        state: State = (
            "bad" if one.sha in culprits else state_of(one)
        )  # also where its runs are not kept any more
        if fold and state == "not_asked" and found and found[-1].state == "not_asked":
            found[-1] = found[-1]._replace(commits=found[-1].commits + 1)
        else:
            found.append(Point(one.sha, state, culprit=one.sha in culprits))
    return found[:POINTS_MOST]


def draw(found: Sequence[Point]) -> Markup:
    """Return the line as inline pictures, one a row."""
    rows = [found[start : start + ROW] for start in range(0, len(found), ROW)]
    return Markup("").join(_row(row, last=at == len(rows) - 1) for at, row in enumerate(rows))


def _row(row: Sequence[Point], *, last: bool) -> Markup:
    width = ROW * STEP
    end = (len(row) - 1) * STEP + STEP // 2 if last else width
    label = ", ".join(_words(point) for point in row)
    parts = "".join(_point(point, at * STEP + STEP // 2) for at, point in enumerate(row))
    return Markup(  # noqa: S704 - every text in it is escaped
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<line class="way" x1="{STEP // 2}" y1="{MIDDLE}" x2="{end}" y2="{MIDDLE}"/>{parts}</svg>'
    )


def _words(point: Point) -> str:
    if point.commits > 1:
        return f"{point.commits} not asked"
    return f"{text.short(point.sha)} {'culprit' if point.culprit else WORDS[point.state]}"


def _point(point: Point, x: int) -> str:
    sign, tone = MARKS[point.state]
    below = f"{point.commits}" if point.commits > 1 else text.short(point.sha)
    classes = f"{tone} culprit" if point.culprit else tone
    return (
        f'<g class="{classes}"><title>{escape(_words(point))}</title>'
        f'<circle cx="{x}" cy="{MIDDLE}" r="{RADIUS}"/>'
        f'<text class="mark" x="{x}" y="{MIDDLE + 5}">{"⋯" if point.commits > 1 else sign}</text>'
        f'<text x="{x}" y="{MIDDLE + RADIUS + 14}">{escape(below)}</text></g>'
    )


def legend() -> Iterator[tuple[str, str, str]]:
    """Yield sign, tone and word of each state."""
    for state, (sign, tone) in MARKS.items():
        yield sign or "○", tone, WORDS[state]
