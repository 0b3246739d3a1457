"""Text of the one comment on a pull request: whose failure, what failed, where to look.

Pure: the same pull request gives the same bytes, so an unchanged comment is never edited. If not everything fits, the
least important is left out first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.allowlist.entry import Level
from bot.oot.publish import comment_backends, failing_tests, failure_text, verdict_line
from bot.oot.verdict import words
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.oot.verdict.view import Backend, Pull
    from bot.web.blocks import BlockLine

MARKER = "<!-- ootbot:summary -->"  # the first line, by which our comment is found
MAX_CHARACTERS = 62_500  # of at most 4 bytes each; GitHub refuses 262,145 bytes

NOT_JUDGED = "upstream's own checks are not judged here"
_PAGE = "this pull request's page"
_ANSWER = 700  # characters of an answer to a command
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}(/[A-Za-z0-9_.-]{1,100})?")  # or org/team


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of a pull request is shown, and what is left out, in words."""

    left_out: str = ""
    lists: bool = True  # of running, stopped and watched backends
    tests: bool = True  # the list of failing tests
    sections: str = "all"  # all | blocking | none: which failing backends get one
    detail: failure_text.Detail = field(default_factory=failure_text.Detail)
    rows: int = 200  # of the table


def render_comment(
    pull: Pull, *, mention: Collection[tuple[str, str]] | None = None, limit: int = 60_000
) -> str:
    """Return the comment's Markdown in at most `limit` characters (and GitHub's bytes).

    `mention` holds (backend repository, login) of the on-calls to be mentioned, which notifies them, where a backend
    at L3 or L4 is red; None means all of them. Any other on-call is a name in a code span.
    """
    for extent in _extents():
        body = _within(min(limit, MAX_CHARACTERS), _paragraphs(pull, extent, mention))
        if body:
            return body
    return f"{MARKER}\n\n{escaping.link(_PAGE, pull.page_url)}\n"


def has_failures(pull: Pull) -> bool:
    """Whether a comment is due when only failures call for one: red now, or on the head still shown."""
    shown = (*pull.backends, *_shown_head(pull).backends)
    return any(
        one.state.red and (one.level == Level.L2 or (one.requested and one.has_checks)) for one in shown
    )


def needing_oncalls(pull: Pull) -> list[Backend]:
    """Return the backends whose on-calls are to be mentioned: red on this very head, at L3 or L4."""
    backends = _listed(pull) if _shown_head(pull) is pull else []
    return [one for one in backends if one.state.red and one.oncalls and not one.ignored_by]


def _extents() -> Iterator[Extent]:
    """Yield ever smaller extents: the least important goes first."""
    yield (extent := Extent())
    detail = replace(extent.detail, traces=False)
    yield (extent := replace(extent, detail=detail, left_out="stack traces"))
    detail = replace(detail, messages=False)
    yield (extent := replace(extent, detail=detail, left_out=f"{extent.left_out}, messages"))
    detail = replace(detail, tests=0)
    yield (extent := replace(extent, detail=detail, tests=False, left_out=f"{extent.left_out}, failed tests"))
    yield (
        extent := replace(extent, detail=replace(detail, jobs=5), left_out=f"{extent.left_out}, most jobs")
    )
    left_out = f"{extent.left_out}, non-blocking failures"
    yield (extent := replace(extent, sections="blocking", left_out=left_out))
    yield (extent := replace(extent, sections="none", lists=False, left_out="all but the table"))
    yield replace(extent, rows=20)
    yield replace(extent, rows=0, left_out="all backends")


def _within(limit: int, paragraphs: Iterator[str]) -> str:
    """Return the comment, empty if it does not fit: then the rest is never rendered."""
    body = f"{MARKER}\n"
    for paragraph in paragraphs:
        body += f"\n{paragraph}\n"
        if len(body) > limit:
            return ""
    return body


def _shown_head(pull: Pull) -> Pull:
    """Return the head whose verdict is shown: the previous one until this one has a report."""
    return pull.previous if pull.previous and not pull.reported else pull


def _paragraphs(pull: Pull, extent: Extent, mention: Collection[tuple[str, str]] | None) -> Iterator[str]:
    shown = _shown_head(pull)
    backends = _listed(shown)
    yield from _head(pull)
    if shown is not pull:
        mention = ()  # they were mentioned on their own commit
    table = comment_backends.show_table(backends, extent.rows, shown.page_url)
    yield from filter(None, [table, comment_backends.list_passed(backends)])
    if extent.tests:
        red = [one for one in backends if one.state.red]
        tests = failing_tests.describe_tests(red, shown.tests, extent.detail, shown.page_url)
        yield from filter(None, [tests, failure_text.describe_missing_baseline(red)])
    for backend in backends:
        if backend.state.red and _has_section(backend, extent):
            yield _section(backend, extent.detail, mention)
    yield from filter(None, [_other_oncalls(backends, extent, mention)])
    if extent.lists:
        yield from filter(None, ["\n".join(map(_remark, shown.remarks))])
        yield from comment_backends.list_others(shown, backends)
    if pull.answers:
        yield _answers(pull)
    if extent.left_out:
        page = escaping.link(_PAGE, pull.page_url)
        yield f"Shortened to fit, without {extent.left_out}. Everything is on {page}."
    yield _footer(pull)


def _head(pull: Pull) -> Iterator[str]:
    """Yield the verdict, and what it is about: the commit and its base."""
    shown = _shown_head(pull)
    backends = _listed(pull)
    verdict = verdict_line.describe_verdict(backends, unknown=pull.gate_unknown)
    yield f"**{verdict if pull.reported else f'nothing reported yet · {verdict}'}**"
    commit = escaping.code(text.short(pull.head_sha))
    yield " · ".join(part for part in (f"{commit}{_base(pull)}", NOT_JUDGED) if part)
    if held := next((one for one in backends if one.state is State.HELD), None):
        yield failure_text.what_now(held)
    if shown is not pull:
        before = verdict_line.describe_verdict(_listed(shown), unknown=shown.gate_unknown)
        yield f"Until then, as on the **previous commit {escaping.code(text.short(shown.head_sha))}**: {before}"


def _base(pull: Pull) -> str:
    if pull.base is None:
        return ""
    base = f" on {escaping.code(pull.base.ref)} at {escaping.code(text.short(pull.base.sha))}"
    at = pull.base.committed_at
    return f"{base} ({text.minute(at)})" if at is not None else base


def _listed(pull: Pull) -> list[Backend]:
    """Return the backends of table and sections: red first, passed last, L4 before L3; only what was asked for."""

    def order(backend: Backend) -> tuple[bool, bool, bool, int, str, str]:
        urgent = backend.state.red and not backend.ignored_by
        passed = backend.state is State.SUCCESS
        stopped = backend.state.finished and not backend.state.red
        return not urgent, passed, stopped, -backend.level, backend.label, backend.repo

    return sorted((b for b in pull.backends if b.role is not Role.WATCHING), key=order)


def _has_section(backend: Backend, extent: Extent) -> bool:
    """Whether a red backend gets a section of its own."""
    return extent.sections == "all" or (extent.sections == "blocking" and backend.blocks)


def _section(
    backend: Backend, detail: failure_text.Detail, mention: Collection[tuple[str, str]] | None
) -> str:
    reason = escaping.text(backend.reason.strip().removesuffix("."))
    sentences = [
        failure_text.describe_ignored(backend)
        if backend.ignored_by
        else failure_text.describe_weight(backend),
        f"{reason}." if reason and backend.failing else "",
        _oncalls(backend, mention),
        "" if backend.failing else failure_text.what_now(backend),
    ]
    line = " ".join(sentence for sentence in sentences if sentence)
    blocks = [line, *failure_text.failing_jobs(backend, replace(detail, tests=0))]  # tests are listed above
    return comment_backends.fold(_named(backend), "\n\n".join(blocks), open_=backend.decides)


def _oncalls(backend: Backend, mention: Collection[tuple[str, str]] | None) -> str:
    names = [
        f"@{login}"
        if _LOGIN.fullmatch(login) and (mention is None or (backend.repo, login) in mention)
        else escaping.code(login)
        for login in dict.fromkeys(backend.oncalls)
    ]
    return f"On call: {', '.join(names)}." if names else ""


def _other_oncalls(
    backends: Sequence[Backend], extent: Extent, mention: Collection[tuple[str, str]] | None
) -> str:
    """Name the on-calls of red backends whose section was left out: they are still needed."""
    lines = [
        f"- {escaping.code(backend.label)}: {_oncalls(backend, mention)}"
        for backend in backends[: extent.rows]
        if backend.state.red and not _has_section(backend, extent) and backend.oncalls
    ]
    return "\n".join(lines)


def _answers(pull: Pull) -> str:
    lines = [
        f"- {escaping.code(given.login)}: {escaping.code(given.command)} {'✋' if given.refused else '→'} "
        f"{escaping.text(given.text, limit=_ANSWER)}"
        for given in pull.answers
    ]
    return comment_backends.fold("Last commands", "\n".join(lines), open_=True)


def _remark(line: BlockLine) -> str:
    return f"- {escaping.link(line.text, line.url)}"


def _named(backend: Backend) -> str:
    name = escaping.html_code(backend.label)
    return f"{words.sign(backend.state)} {name}: {escaping.html_text(words.headline(backend))}"


def _footer(pull: Pull) -> str:
    commands = "Run failed jobs again with `/oot rerun`; `/oot help` lists all commands."
    return " ".join(
        part
        for part in (
            commands,
            failure_text.link_line(("All results", pull.page_url), ("What the words mean", pull.help_url)),
        )
        if part
    )
