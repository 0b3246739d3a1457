"""Text of the one comment on a pull request: whose failure, what failed, where to look. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.allowlist.entry import Level
from bot.oot.publish import failure_text
from bot.oot.verdict import failure_list, gate, view
from bot.oot.verdict.gate import GateState
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bot.oot.publish.failure_text import FailureExtent
    from bot.oot.verdict.failure import Failure, FailureList
    from bot.oot.verdict.gate import Gate
    from bot.oot.verdict.view import Backend, Pull
    from bot.web.blocks import BlockLine

NAMED_MOST = 3  # backends that are named of each kind
NOT_BLOCKED = "no backend blocks merging"
NOT_ASKED = "none blocks or was asked for"
TESTS_MOST = 10  # that are named
TEST_BACKENDS_MOST = 8  # named of one test
BACKENDS_LISTED = 50  # backends of one list
STOPPED = frozenset({State.CANCELLED, State.NEUTRAL, State.NOT_RUN, State.SKIPPED})
MARKER = "<!-- ootbot:summary -->"  # the first line, by which our comment is found
MAX_CHARACTERS = 62_500  # of at most 4 bytes each; GitHub refuses 262,145 bytes

NOT_JUDGED = "upstream's own checks are not judged here"
_PAGE = "this pull request's page"
_ANSWER = 700  # characters of an answer to a command
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}(/[A-Za-z0-9_.-]{1,100})?")  # or org/team


@dataclass(frozen=True, kw_only=True)
class CommentExtent:
    """How much of a pull request is shown, and in words what is left out."""

    omitted: str = ""
    lists: bool = True  # of running, stopped and watched backends
    tests: bool = True  # the list of failing tests
    sections: str = "all"  # all | blocking | none: which failing backends get one
    detail: failure_text.FailureExtent = field(default_factory=failure_text.FailureExtent)
    rows: int = 200  # of the table


def describe_verdict(backends: Sequence[Backend], failures: FailureList, *, unknown: str = "") -> str:
    """Return the verdict on some backends, as in "❌ `tpu` blocks merging: 2 new failures · `npu`: 1 new failure".

    `unknown` is the reason why the blocking backends are unknown.
    """
    if not backends and not unknown:
        return NOT_ASKED
    judged = gate.judge_gate(backends, unknown=unknown)
    red = [
        backend
        for backend in backends
        if backend.state.red and not backend.decides and not backend.ignored_by
    ]
    unrelated = [backend for backend in red if _is_unrelated(backend, failures)]
    theirs = [backend for backend in red if backend not in unrelated]
    parts = [*_of_gate(judged, failures), *_failing(theirs, failures)]
    if unrelated:
        parts.append(f"{_count_unrelated(unrelated, failures)} unrelated")
    return " · ".join(parts)


def describe_tests(
    failures: FailureList, backends: Sequence[Backend], detail: FailureExtent, page: str
) -> str:
    """List the tests that fail on some backends; empty without any. `page` shows all of them."""
    repos = {backend.repo.lower() for backend in backends}
    tests = [failure for failure in failures.all if failure.is_test and repos & failure.on.keys()]
    total = len(tests) + failures.tests_left
    if not tests:
        return ""
    items = [_describe_test(test, repos, detail) for test in tests[:TESTS_MOST]]
    rest = total - len(items)
    more = [f"- …and {rest:,} more: {failure_text.link_line(('all of them', page))}"] if rest else []
    return "\n".join([f"**{text.plural(total, 'failing test')}**, each once:", "", *items, *more]).rstrip()


def show_table(backends: Sequence[Backend], most: int, page_url: str) -> str:
    """Return a table of the backends that did not simply pass, up to a limit; empty without any."""
    listed = [backend for backend in backends if not _is_plain(backend)]
    lines = ["| Backend | Result | Level | Jobs | Took | |", "|---|---|---|---|---:|---|"]
    lines += [_row(backend) for backend in listed[:most]]
    rest = len(listed) - most
    if rest > 0:
        more = f"{text.plural(rest, 'more backend')}: {view.tally_states(listed[most:])}"
        lines += ["", f"…and {more}. {failure_text.link_line(('all of them', page_url))}".rstrip()]
    return "\n".join(lines if most else lines[3:]) if listed else ""


def list_passed(backends: Sequence[Backend]) -> str:
    """List in one line the backends that simply passed."""
    plain = [backend for backend in backends if _is_plain(backend)]
    names = text.listing([escaping.code(backend.label) for backend in plain], limit=BACKENDS_LISTED)
    return f"{view.tally_states(plain)}: {names}" if plain else ""


def list_others(pull: Pull, backends: Sequence[Backend]) -> Iterator[str]:
    """Yield folded lists of running, stopped and watched backends."""
    running = [backend for backend in backends if backend.state in {State.RUNNING, State.CONFIRMING}]
    stopped = [backend for backend in backends if backend.state in STOPPED]
    watched = _watched(pull)
    whom = (
        "level 2, or 3 without its label"
        if any(backend.level == Level.L3 for backend in watched)
        else "level 2"
    )
    for heading, listed in (
        (view.tally_states(running), running),
        (view.tally_states(stopped), stopped),
        (f"Also watching ({whom}): {view.tally_states(watched)}", watched),
    ):
        if listed:
            yield fold_text(heading, _list(listed, pull.page_url))


def fold_text(summary: str, body: str, *, open_: bool = False) -> str:
    """Fold text, to be opened by the reader."""
    tag = "<details open>" if open_ else "<details>"
    return f"{tag}\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


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
    """Whether there are failures that call for a comment: red now, or on the head still shown."""
    shown = (*pull.backends, *_shown_head(pull).backends)
    return any(
        backend.state.red and (backend.level == Level.L2 or (backend.requested and backend.has_checks))
        for backend in shown
    )


def needing_oncalls(pull: Pull) -> list[Backend]:
    """Return the backends whose on-calls to mention: those red on this very head, at L3 or L4."""
    backends = _listed(pull) if _shown_head(pull) is pull else []
    return [
        backend for backend in backends if backend.state.red and backend.oncalls and not backend.ignored_by
    ]


def _of_gate(judged: Gate, failures: FailureList) -> list[str]:
    match judged.state:
        case GateState.FAILED:
            blocking = [
                f"{escaping.code(backend.label)} blocks merging: {gate.describe_gate_failure(backend, failures)}"
                for backend in judged.stopping[:NAMED_MOST]
            ]
            blocking[0] = f"❌ {blocking[0]}"
            rest = len(judged.stopping) - NAMED_MOST
            return [*blocking, f"{rest} more block merging"] if rest > 0 else blocking
        case GateState.WAITING:
            return [_waiting(judged)]
        case _ if not judged.blocking:
            return [f"✅ {NOT_BLOCKED}"]
        case _:
            return [f"✅ {judged.sentence(open_=True)}"]


def _waiting(judged: Gate) -> str:
    if judged.unknown:
        return f"⏳ waiting: {escaping.text(judged.unknown)}"
    awaited = [escaping.code(backend.label) for backend in judged.awaited]
    parts = [f"⏳ waiting for {text.listing(awaited)}"] if awaited else []
    held = [escaping.code(backend.label) for backend in judged.deciding if backend.state is State.HELD]
    return " · ".join([*parts, *([f"✋ {text.listing(held)} held back"] if held else [])])


def _failing(red: Sequence[Backend], failures: FailureList) -> list[str]:
    named = [
        f"{escaping.code(backend.label)}: {gate.describe_gate_failure(backend, failures)}"
        for backend in red[:NAMED_MOST]
    ]
    rest = len(red) - NAMED_MOST
    return [*named, f"{rest} more failed"] if rest > 0 else named


def _is_unrelated(backend: Backend, failures: FailureList) -> bool:
    """Whether the change likely caused none of the failures there."""
    on_backend = failures.on_backend(backend.repo)
    return bool(on_backend and backend.failing) and all(
        failure.is_known_on(backend.repo) for failure in on_backend
    )


def _count_unrelated(backends: Sequence[Backend], failures: FailureList) -> int:
    """Count the failures of some backends; one shared by several counts once."""
    counts = {
        id(failure): failure.count for backend in backends for failure in failures.on_backend(backend.repo)
    }
    return sum(counts.values())


def _describe_test(test: Failure, repos: set[str], detail: FailureExtent) -> str:
    told = next((each for each in test.details if each.message), next(iter(test.details), None))
    place = told.place if told and not test.url else ""
    labels = dict.fromkeys(job.label for job in test.jobs if job.key.repo in repos)
    where = f"fails on {text.listing([escaping.code(label) for label in labels], limit=TEST_BACKENDS_MOST)}"
    parts = [
        f"- {escaping.code(test.name)}" + (f" at {escaping.code(place)}" if place else ""),
        escaping.text(test.words) if test.words else where,
        f"**{test.kind}**" if test.kind else "",
        *(f"{escaping.code(label)}: {other.word}" for label, other in test.differing if other.word),
        failure_text.link_line(("history", test.url)),
    ]
    line = " · ".join(part for part in parts if part)
    block = failure_text.message_block(told.message, told.trace, detail) if told else ""
    return f"{line}\n\n{block}\n" if block else line


def _is_plain(backend: Backend) -> bool:
    return backend.state is State.SUCCESS and not backend.thin and not backend.ignored_by


def _row(backend: Backend) -> str:
    result = f"{view.state_sign(backend.state)} {view.state_word(backend.state)}"
    if backend.ignored_by:
        result += f", ignored by {escaping.code(backend.ignored_by)}"
    if backend.thin and backend.state is State.SUCCESS:
        result += f", but {backend.thin}"
    cells = [
        escaping.code(backend.label),
        result,
        f"L{backend.level}, blocking" if backend.decides else f"L{backend.level}",
        view.job_counts(backend.jobs) if backend.jobs else "",
        text.duration(view.run_time(backend)),
        failure_text.link_line(("results", backend.page_url), ("run", backend.run_url)),
    ]
    return f"| {' | '.join(cells)} |"


def _watched(pull: Pull) -> list[Backend]:
    """Return the backends that nothing waits for: those at level 2, and at level 3 without their label."""
    watched = (
        backend for backend in pull.backends if backend.role is Role.WATCHING and backend.level > Level.L1
    )
    return sorted(watched, key=lambda backend: (backend.label, backend.repo))


def _list(backends: Sequence[Backend], page_url: str) -> str:
    lines = [
        " · ".join(
            part
            for part in (
                f"- {view.state_sign(shown.state)} {escaping.code(shown.label)}: {escaping.text(view.headline(shown))}",
                failure_text.link_line(("results", shown.page_url)),
            )
            if part
        )
        for shown in backends[:BACKENDS_LISTED]
    ]
    if len(backends) > BACKENDS_LISTED:
        rest = text.plural(len(backends) - BACKENDS_LISTED, "more backend")
        lines.append(f"- …and {rest}: {escaping.link('all of them', page_url)}")
    return "\n".join(lines)


def _extents() -> Iterator[CommentExtent]:
    """Yield ever smaller extents, dropping the least important first."""
    yield (extent := CommentExtent())
    detail = replace(extent.detail, traces=False)
    yield (extent := replace(extent, detail=detail, omitted="stack traces"))
    detail = replace(detail, messages=False)
    yield (extent := replace(extent, detail=detail, omitted=f"{extent.omitted}, messages"))
    detail = replace(detail, tests=0)
    yield (extent := replace(extent, detail=detail, tests=False, omitted=f"{extent.omitted}, failed tests"))
    yield (extent := replace(extent, detail=replace(detail, jobs=5), omitted=f"{extent.omitted}, most jobs"))
    omitted = f"{extent.omitted}, non-blocking failures"
    yield (extent := replace(extent, sections="blocking", omitted=omitted))
    yield (extent := replace(extent, sections="none", lists=False, omitted="all but the table"))
    yield replace(extent, rows=20)
    yield replace(extent, rows=0, omitted="all backends")


def _within(limit: int, paragraphs: Iterator[str]) -> str:
    """Return the comment, empty if it does not fit; rendering stops once it is too long."""
    body = f"{MARKER}\n"
    for paragraph in paragraphs:
        body += f"\n{paragraph}\n"
        if len(body) > limit:
            return ""
    return body


def _shown_head(pull: Pull) -> Pull:
    """Return the head whose verdict is shown: the previous one until this head has a report."""
    return pull.previous if pull.previous and not pull.reported else pull


def _paragraphs(
    pull: Pull, extent: CommentExtent, mention: Collection[tuple[str, str]] | None
) -> Iterator[str]:
    shown = _shown_head(pull)
    backends = _listed(shown)
    yield from _head(pull)
    if shown is not pull:
        mention = ()  # they were mentioned on their own commit
    table = show_table(backends, extent.rows, shown.page_url)
    yield from filter(None, [table, list_passed(backends)])
    if extent.tests:
        red = [listed for listed in backends if listed.state.red]
        tests = describe_tests(_failures(shown), red, extent.detail, shown.page_url)
        yield from filter(None, [tests, failure_text.describe_missing_baseline(red)])
    for backend in backends:
        if backend.state.red and _has_section(backend, extent):
            yield _section(backend, extent.detail, mention)
    yield from filter(None, [_other_oncalls(backends, extent, mention)])
    if extent.lists:
        yield from filter(None, ["\n".join(map(_remark, shown.remarks))])
        yield from list_others(shown, backends)
    if pull.answers:
        yield _answers(pull)
    if extent.omitted:
        page = escaping.link(_PAGE, pull.page_url)
        yield f"Shortened to fit, without {extent.omitted}. Everything is on {page}."
    yield _footer(pull)


def _head(pull: Pull) -> Iterator[str]:
    """Yield the verdict, then the commit and the base it is about."""
    shown = _shown_head(pull)
    backends = _listed(pull)
    verdict = _verdict(pull)
    yield f"**{verdict if pull.reported else f'nothing reported yet · {verdict}'}**"
    commit = escaping.code(text.short(pull.head_sha))
    yield " · ".join(part for part in (f"{commit}{_base(pull)}", NOT_JUDGED) if part)
    if held := next((backend for backend in backends if backend.state is State.HELD), None):
        yield failure_text.what_now(held)
    if shown is not pull:
        before = escaping.code(text.short(shown.head_sha))
        yield f"Until then, as on the **previous commit {before}**: {_verdict(shown)}"


def _verdict(pull: Pull) -> str:
    return describe_verdict(_listed(pull), _failures(pull), unknown=pull.gate_unknown)


def _failures(pull: Pull) -> FailureList:
    return failure_list.list_on_backends(pull) if pull.failures is None else pull.failures


def _base(pull: Pull) -> str:
    if pull.base is None:
        return ""
    base = f" on {escaping.code(pull.base.ref)} at {escaping.code(text.short(pull.base.sha))}"
    at = pull.base.committed_at
    return f"{base} ({text.minute(at)})" if at is not None else base


def _listed(pull: Pull) -> list[Backend]:
    """Return the requested backends for table and sections: red first, passed last, L4 before L3."""

    def order(backend: Backend) -> tuple[bool, bool, bool, int, str, str]:
        urgent = backend.state.red and not backend.ignored_by
        passed = backend.state is State.SUCCESS
        stopped = backend.state.finished and not backend.state.red
        return not urgent, passed, stopped, -backend.level, backend.label, backend.repo

    return sorted((b for b in pull.backends if b.role is not Role.WATCHING), key=order)


def _has_section(backend: Backend, extent: CommentExtent) -> bool:
    """Whether a red backend gets a section of its own."""
    return extent.sections == "all" or (extent.sections == "blocking" and backend.blocks)


def _section(
    backend: Backend, detail: failure_text.FailureExtent, mention: Collection[tuple[str, str]] | None
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
    return fold_text(_named(backend), "\n\n".join(blocks), open_=backend.decides)


def _oncalls(backend: Backend, mention: Collection[tuple[str, str]] | None) -> str:
    names = [
        f"@{login}"
        if _LOGIN.fullmatch(login) and (mention is None or (backend.repo, login) in mention)
        else escaping.code(login)
        for login in dict.fromkeys(backend.oncalls)
    ]
    return f"On call: {', '.join(names)}." if names else ""


def _other_oncalls(
    backends: Sequence[Backend], extent: CommentExtent, mention: Collection[tuple[str, str]] | None
) -> str:
    """Name the on-calls of red backends whose section was left out, as they are still needed."""
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
    return fold_text("Last commands", "\n".join(lines), open_=True)


def _remark(line: BlockLine) -> str:
    return f"- {escaping.link(line.text, line.url)}"


def _named(backend: Backend) -> str:
    name = escaping.html_code(backend.label)
    return f"{view.state_sign(backend.state)} {name}: {escaping.html_text(view.headline(backend))}"


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
