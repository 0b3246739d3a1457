"""What does the one comment on a pull request say? Whose failure, what failed, where to look.

Pure: the same pull request gives the same bytes, so an unchanged comment is never edited. When all
of it would not fit, `domain.room` says in which order the less important is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.domain import failures, inert, words
from bot.domain.allowlist_entry import Level
from bot.domain.room import ladder
from bot.domain.view import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.domain.room import Room
    from bot.domain.view import Backend, Pull

MARKER = "<!-- ootbot:summary -->"  # the first line: how our comment is found again
MAX_CHARACTERS = 62_500  # of at most 4 bytes each; GitHub refuses 262,145 bytes

_PAGE = "this pull request's page"
_ANSWER = 700  # characters of an answer to a command
_LISTED = 50  # backends in a list of running, passing or watching ones
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}(/[A-Za-z0-9_.-]{1,100})?")  # or org/team


def render(pull: Pull, *, mention: Collection[tuple[str, str]] | None = None, limit: int = 60_000) -> str:
    """Return the comment's Markdown in at most `limit` characters (and GitHub's bytes).

    `mention` holds (backend repository, login) of the on-calls to be mentioned live where a backend
    at L3 or L4 is red; None means all of them. Any other on-call is a name in a code span.
    """
    for room in ladder():
        body = _within(min(limit, MAX_CHARACTERS), _paragraphs(pull, room, mention))
        if body:
            return body
    return f"{MARKER}\n\n{inert.link(_PAGE, pull.page_url)}\n"


def worth_saying(pull: Pull) -> bool:
    """Whether a comment is due when only failures ask for one: red now, or still shown as red."""
    shown = (*pull.backends, *_told(pull).backends)
    return any(one.state.red and (one.level == Level.L2 or (one.asked and one.has_checks)) for one in shown)


def calling(pull: Pull) -> list[Backend]:
    """Return the backends whose on-calls the comment calls for: red on this very head, at L3 or L4."""
    backends = _listed(pull) if _told(pull) is pull else []
    return [one for one in backends if one.state.red and one.oncalls and not one.ignored_by]


def _within(limit: int, paragraphs: Iterator[str]) -> str:
    """Return the comment, empty as soon as it is known not to fit: the rest is never written."""
    body = f"{MARKER}\n"
    for paragraph in paragraphs:
        body += f"\n{paragraph}\n"
        if len(body) > limit:
            return ""
    return body


def _told(pull: Pull) -> Pull:
    """Return whose verdict is shown: the previous head's until this one has a report."""
    return pull.previous if pull.previous and not pull.reported else pull


def _paragraphs(pull: Pull, room: Room, mention: Collection[tuple[str, str]] | None) -> Iterator[str]:
    told = _told(pull)
    backends = _listed(told)
    yield _head(pull)
    if told is not pull:
        mention = ()  # they were mentioned on their own commit
        commit = inert.code(words.short(told.head_sha))
        yield f"Until then, as on the **previous commit {commit}**: {_standing(told)}."
    yield from filter(None, [_weight(backends), _table(backends, room, told.page_url)])
    for backend in backends:
        if backend.state.red and _has_section(backend, room):
            yield _section(backend, room.detail, mention)
    yield from filter(None, [_unsaid_oncalls(backends, room, mention)])
    if room.lists:
        yield from _lists(told, backends, room)
    if pull.answers:
        yield _answers(pull)
    if room.left_out:
        page = inert.link(_PAGE, pull.page_url)
        yield f"Shortened to fit, without {room.left_out}. Everything is on {page}."
    yield _footer(pull)


def _head(pull: Pull) -> str:
    reported = "" if pull.reported else "nothing reported yet; "
    commit = inert.code(words.short(pull.head_sha))
    held = [backend for backend in _listed(pull) if backend.state is State.HELD]
    says = f"**Out-of-tree backends** on {commit}: {reported}{_standing(pull)}."
    return f"{says} {failures.what_now(held[0])}" if held else says


def _standing(pull: Pull) -> str:
    return words.tally(_listed(pull)) or "none blocks or was asked for"


def _listed(pull: Pull) -> list[Backend]:
    """Return the backends of table and sections: red first, passed last, L4 before L3; only what was asked for."""

    def order(backend: Backend) -> tuple[bool, bool, bool, int, str, str]:
        urgent = backend.state.red and not backend.ignored_by
        passed = backend.state is State.SUCCESS
        stopped = backend.state.finished and not backend.state.red
        return not urgent, passed, stopped, -backend.level, backend.label, backend.repo

    return sorted((b for b in pull.backends if b.asked and b.has_checks), key=order)


def _watched(pull: Pull) -> list[Backend]:
    """Return the backends that nobody here waits for: level 2, and level 3 where its label is missing."""
    watched = (b for b in pull.backends if b.level == Level.L2 or (b.level == Level.L3 and not b.asked))
    return sorted(watched, key=lambda b: (b.label, b.repo))


def _has_section(backend: Backend, room: Room) -> bool:
    """Whether there is room for all about a red backend."""
    return room.sections == "all" or (room.sections == "blocking" and backend.blocks)


def _weight(backends: Sequence[Backend]) -> str:
    """Say which failures block merging, and whether they look like this change's."""
    red = [backend for backend in backends if backend.state.red]
    if not red:
        return ""
    blocking = [inert.code(b.label) for b in red if b.decides]
    says = f"Blocks merging: {words.listing(blocking)}." if blocking else "No failure blocks merging."
    return f"{says} {failures.whose(red)}".rstrip()


def _table(backends: Sequence[Backend], room: Room, page_url: str) -> str:
    lines = ["| Backend | Result | Level | Jobs | Took | |", "|---|---|---|---|---:|---|"]
    lines += [_row(backend) for backend in backends[: room.rows]]
    rest = len(backends) - room.rows
    if rest > 0:
        more = f"{words.plural(rest, 'more backend')}: {words.tally(backends[room.rows :])}"
        lines += ["", f"…and {more}. {failures.links(('all of them', page_url))}".rstrip()]
    return "\n".join(lines if room.rows else lines[3:]) if backends else ""


def _row(backend: Backend) -> str:
    result = f"{words.sign(backend.state)} {words.word(backend.state)}"
    if backend.ignored_by:
        result += f", ignored by {inert.code(backend.ignored_by)}"
    cells = [
        inert.code(backend.label),
        result,
        f"L{backend.level}, blocking" if backend.decides else f"L{backend.level}",
        words.job_counts(backend.jobs) if backend.jobs else "",
        words.duration(words.took(backend)),
        failures.links(("results", backend.page_url), ("run", backend.run_url)),
    ]
    return f"| {' | '.join(cells)} |"


def _section(backend: Backend, detail: failures.Detail, mention: Collection[tuple[str, str]] | None) -> str:
    reason = inert.text(backend.reason.strip().removesuffix("."))
    sentences = [
        failures.ignored(backend) if backend.ignored_by else failures.weight(backend),
        f"{reason}." if reason and backend.failing else "",
        _oncalls(backend, mention),
        "" if backend.failing else failures.what_now(backend),
    ]
    says = " ".join(sentence for sentence in sentences if sentence)
    blocks = [says, *failures.failing_jobs(backend, detail)]
    return _folded(_named(backend), "\n\n".join(blocks), wide=backend.decides)


def _oncalls(backend: Backend, mention: Collection[tuple[str, str]] | None) -> str:
    names = [
        f"@{login}"
        if _LOGIN.fullmatch(login) and (mention is None or (backend.repo, login) in mention)
        else inert.code(login)
        for login in dict.fromkeys(backend.oncalls)
    ]
    return f"On call: {', '.join(names)}." if names else ""


def _unsaid_oncalls(
    backends: Sequence[Backend], room: Room, mention: Collection[tuple[str, str]] | None
) -> str:
    """Name the on-calls of red backends whose section was left out: they are needed still."""
    lines = [
        f"- {inert.code(backend.label)}: {_oncalls(backend, mention)}"
        for backend in backends[: room.rows]
        if backend.state.red and not _has_section(backend, room) and backend.oncalls
    ]
    return "\n".join(lines)


def _lists(told: Pull, backends: Sequence[Backend], room: Room) -> Iterator[str]:
    running = [b for b in backends if b.state in {State.RUNNING, State.CONFIRMING}]
    stopped = [b for b in backends if b.state in {State.CANCELLED, State.NEUTRAL}]
    passing = [b for b in backends if b.state is State.SUCCESS and room.passing]
    watched = _watched(told)
    whom = "level 2, or 3 without its label" if any(b.level == Level.L3 for b in watched) else "level 2"
    for heading, listed in (
        (words.tally(running), running),
        (words.tally(stopped), stopped),
        (words.tally(passing), passing),
        (f"Also watching ({whom}): {words.tally(watched)}", watched),
    ):
        if listed:
            yield _folded(heading, _list(listed, told.page_url))


def _answers(pull: Pull) -> str:
    lines = [
        f"- {inert.code(given.login)}: {inert.code(given.command)} {'✋' if given.refused else '→'} "
        f"{inert.text(given.text, limit=_ANSWER)}"
        for given in pull.answers
    ]
    return _folded("Last commands", "\n".join(lines), wide=True)


def _list(backends: Sequence[Backend], page_url: str) -> str:
    lines = [
        " · ".join(
            part
            for part in (
                f"- {words.sign(b.state)} {inert.code(b.label)}: {inert.text(words.verdict(b))}",
                failures.links(("results", b.page_url)),
            )
            if part
        )
        for b in backends[:_LISTED]
    ]
    if len(backends) > _LISTED:
        rest = words.plural(len(backends) - _LISTED, "more backend")
        lines.append(f"- …and {rest}: {inert.link('all of them', page_url)}")
    return "\n".join(lines)


def _named(backend: Backend) -> str:
    name = inert.html_code(backend.label)
    return f"{words.sign(backend.state)} {name}: {inert.html_text(words.verdict(backend))}"


def _folded(summary: str, body: str, *, wide: bool = False) -> str:
    tag = "<details open>" if wide else "<details>"
    return f"{tag}\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _footer(pull: Pull) -> str:
    commands = "Run failed jobs again with `/oot rerun`; `/oot help` lists all commands."
    return " ".join(
        part
        for part in (
            commands,
            failures.links(("All results", pull.page_url), ("What the words mean", pull.help_url)),
        )
        if part
    )
