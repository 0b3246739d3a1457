"""Filters of the templates of backends and pull requests: tones, counts, cells of days and jobs."""

from __future__ import annotations

import functools
from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from bot.core.json_fields import iso_time
from bot.core.text import duration, percent, plural
from bot.oot.publish import failure_text
from bot.oot.statistics import stats
from bot.oot.statistics.readiness import Word
from bot.oot.statistics.stats import DAY
from bot.oot.verdict import view
from bot.oot.verdict.gate import GateState
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Role, anchor_of
from bot.pages.backends import job_matrix
from bot.web.html import SIGNS, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bot.oot.verdict.view import Backend, Job
    from bot.pages.backends.job_matrix import Matrix, MatrixCell, MatrixRow

ROLES = {Role.BLOCKING: "Blocking", Role.REQUESTED: "Asked for by label", Role.WATCHING: "Watching"}
GATES = {GateState.PASSED: "good", GateState.FAILED: "bad", GateState.WAITING: "wait", None: "idle"}
READY = {Word.MEETS: "good", Word.MISSES: "bad", Word.UNKNOWN: "idle"}
GRADES = {"green": "good", "amber": "warn", "red": "bad", "none": "idle"}
VALUES = {"ok_to_test": view.OK_TO_TEST}


def tone_of_state(state: State) -> str:
    """Return the tone (colour and sign) of a backend's state."""
    if state.red:
        return "bad"
    if not state.finished:
        return "wait"
    return "good" if state is State.SUCCESS else "idle"


def tone_of_job(job: Job) -> str:
    """Return the tone of a job."""
    if job.red:
        return "bad"
    if not job.finished:
        return "wait"
    return "good" if job.conclusion == "success" else "idle"


def tally_states(backends: Iterable[Backend]) -> list[tuple[State, int]]:
    """Return the number of backends in each state: red ones first, then unfinished ones."""
    counts = Counter(backend.state for backend in backends)
    return sorted(counts.items(), key=lambda item: (not item[0].red, item[0].finished))


def job_counts(jobs: Sequence[Job]) -> str:
    """Return how a backend's jobs stand, as in "3 of 4 passed, 1 running"."""
    timed_out = sum(job.red and job.conclusion == "timed_out" for job in jobs)
    failed = sum(job.red for job in jobs) - timed_out
    running = sum(not job.finished for job in jobs)
    passed = sum(job.conclusion == "success" for job in jobs)
    parts = [f"{passed} of {len(jobs)} passed"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{timed_out} timed out"] if timed_out else []
    parts += [f"{running} running"] if running else []
    return ", ".join(parts)


def day_cells(rates: Sequence[float | None], today: int) -> Markup:
    """Return a cell with a character for each day, the last one today; `today` counts days since 1970.

    Written here, not in a template: a page may have 15,000 of them.
    """
    first = today - len(rates) + 1
    cells = "".join([_day_cell(first + at, rate) for at, rate in enumerate(rates)])
    known = [rate for rate in rates if rate is not None]
    words = f"lowest {percent(min(known))}, last {percent(known[-1])}" if known else "no data"
    return Markup(f'<span class=days role=img aria-label="pass rate by day: {words}">{cells}</span>')  # noqa: S704 - our own words


def newest_cell(grid: Matrix, place: int) -> str:
    """Return the key of a column's newest cell; empty where it has none."""
    return next((cell.key for line in grid.lines if (cell := line.cells[place])), "")


def make_cells(grid: Matrix) -> Callable[[MatrixRow, str], Markup]:
    """Return a function that makes the cells of a line, given the rest of the page's query.

    Written here, not in a template: a page may have 1,500 cells.
    """
    names = [escape(word(column.name)) for column in grid.columns]

    def cells_of(line: MatrixRow, rest: str) -> Markup:
        pairs = zip(line.cells, names, strict=True)
        end = escape(rest)
        html = "".join([_link(cell, name, end) if cell else "<td>" for cell, name in pairs])
        return Markup(html)  # noqa: S704 - names and query are escaped above

    return cells_of


FILTERS = {
    "anchor": anchor_of,
    "worst_tone": job_matrix.worst,
    "day_cells": day_cells,
    "newest_cell": newest_cell,
    "tone_of_word": READY.__getitem__,
    "state": view.state_word,
    "job_word": view.job_word,
    "tally": tally_states,
    "role": ROLES.__getitem__,
    "tone_of_gate": GATES.__getitem__,
    "tone_of_state": tone_of_state,
    "tone_of_job": tone_of_job,
    "tone_of_rate": lambda rate: GRADES[stats.grade(rate)],
    "job_counts": job_counts,
    "by_urgency": failure_text.by_urgency,
}


@functools.lru_cache(20_000)
def _day_cell(day: int, rate: float | None) -> str:
    """Return a day's cell; most days of most backends share a few rates, so cells are cached."""
    tone = GRADES[stats.grade(rate)]
    sign = "·" if rate is None else SIGNS[tone]
    return f'<b class={tone} title="{iso_time(day * DAY)[:10]}: {percent(rate)}">{sign}</b>'


def _link(cell: MatrixCell, name: str, rest: str) -> str:
    """Return a cell: a link to its jobs, with its content in words."""
    seconds = cell.seconds
    took = "" if seconds is None else f", {duration(seconds)}"
    again = f", {plural(len(cell.earlier), 'earlier attempt')}" if cell.earlier else ""
    marks = SIGNS[cell.tone]
    marks += f"<sub>{len(cell.rows)}</sub>" if len(cell.rows) > 1 else ""
    marks += f"<sup>+{len(cell.earlier)}</sup>" if cell.earlier else ""
    title = f"{name}: {cell.label}{took}{again}"
    link = f'<a href="?cell={cell.key}{rest}#cell" class="c {cell.tone}" title="{title}">'
    return f'<td>{link}{marks}<span class="hidden"> {cell.label}</span></a>'
