"""Markdown of the comment's lists of backends: the table, those that passed in one line, the others folded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.allowlist.entry import Level
from bot.oot.publish import failure_text
from bot.oot.verdict import words
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.oot.verdict.view import Backend, Pull

LISTED = 50  # backends of one list
STOPPED = frozenset({State.CANCELLED, State.NEUTRAL, State.NOT_RUN, State.SKIPPED})


def show_table(backends: Sequence[Backend], most: int, page_url: str) -> str:
    """Return a table of at most so many backends that did not just pass; empty without any."""
    listed = [one for one in backends if not _is_plain(one)]
    lines = ["| Backend | Result | Level | Jobs | Took | |", "|---|---|---|---|---:|---|"]
    lines += [_row(backend) for backend in listed[:most]]
    rest = len(listed) - most
    if rest > 0:
        more = f"{text.plural(rest, 'more backend')}: {words.tally(listed[most:])}"
        lines += ["", f"…and {more}. {failure_text.link_line(('all of them', page_url))}".rstrip()]
    return "\n".join(lines if most else lines[3:]) if listed else ""


def list_passed(backends: Sequence[Backend]) -> str:
    """Return one line on the backends that passed, of which nothing else is to be said."""
    plain = [one for one in backends if _is_plain(one)]
    names = text.listing([escaping.code(one.label) for one in plain], limit=LISTED)
    return f"{words.tally(plain)}: {names}" if plain else ""


def _is_plain(backend: Backend) -> bool:
    return backend.state is State.SUCCESS and not backend.thin and not backend.ignored_by


def _row(backend: Backend) -> str:
    result = f"{words.sign(backend.state)} {words.word(backend.state)}"
    if backend.ignored_by:
        result += f", ignored by {escaping.code(backend.ignored_by)}"
    if backend.thin and backend.state is State.SUCCESS:
        result += f", but {backend.thin}"
    cells = [
        escaping.code(backend.label),
        result,
        f"L{backend.level}, blocking" if backend.decides else f"L{backend.level}",
        words.job_counts(backend.jobs) if backend.jobs else "",
        text.duration(words.took(backend)),
        failure_text.link_line(("results", backend.page_url), ("run", backend.run_url)),
    ]
    return f"| {' | '.join(cells)} |"


def list_others(pull: Pull, backends: Sequence[Backend]) -> Iterator[str]:
    """Yield folded lists of running, stopped and watched backends."""
    running = [b for b in backends if b.state in {State.RUNNING, State.CONFIRMING}]
    stopped = [b for b in backends if b.state in STOPPED]
    watched = _watched(pull)
    whom = "level 2, or 3 without its label" if any(b.level == Level.L3 for b in watched) else "level 2"
    for heading, listed in (
        (words.tally(running), running),
        (words.tally(stopped), stopped),
        (f"Also watching ({whom}): {words.tally(watched)}", watched),
    ):
        if listed:
            yield fold(heading, _list(listed, pull.page_url))


def _watched(pull: Pull) -> list[Backend]:
    """Return the backends that nothing waits for here: level 2, and level 3 without its label."""
    watched = (b for b in pull.backends if b.role is Role.WATCHING and b.level > Level.L1)
    return sorted(watched, key=lambda b: (b.label, b.repo))


def _list(backends: Sequence[Backend], page_url: str) -> str:
    lines = [
        " · ".join(
            part
            for part in (
                f"- {words.sign(b.state)} {escaping.code(b.label)}: {escaping.text(words.headline(b))}",
                failure_text.link_line(("results", b.page_url)),
            )
            if part
        )
        for b in backends[:LISTED]
    ]
    if len(backends) > LISTED:
        rest = text.plural(len(backends) - LISTED, "more backend")
        lines.append(f"- …and {rest}: {escaping.link('all of them', page_url)}")
    return "\n".join(lines)


def fold(summary: str, body: str, *, open_: bool = False) -> str:
    """Return text that is shown when it is asked for."""
    tag = "<details open>" if open_ else "<details>"
    return f"{tag}\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
