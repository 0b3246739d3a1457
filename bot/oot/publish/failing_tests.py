"""Markdown of the tests that fail on backends: each once, with its backends, its verdict and its message. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.publish import failure_text
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.publish.failure_text import Detail
    from bot.oot.verdict.view import Backend, FailedTest, Job
    from bot.web.blocks import HeadTests, TestLine

MOST = 10  # that are named
BACKENDS = 8  # named of one test


@dataclass(frozen=True, kw_only=True)
class _Reported:
    """A test as backends reported it, the first of them that said the most."""

    test: FailedTest
    labels: tuple[str, ...]
    history: History | None  # of its jobs: new where one is, else where all are the same


def describe_tests(backends: Sequence[Backend], tests: HeadTests | None, detail: Detail, page: str) -> str:
    """Return the list of failing tests, those that features know first; empty without any. `page`: where all are."""
    reported = _group(backends)
    lines = tests.lines if tests else ()
    matched = {id(one) for line in lines for one in reported if _is_same(line, one)}
    items = [_known(line, [one for one in reported if _is_same(line, one)], detail) for line in lines]
    total = tests.total if tests else 0
    if total == len(lines):  # otherwise the rest may be among those that are only counted
        others = [one for one in reported if id(one) not in matched]
        items += [_item(_name(one.test), one, detail) for one in others]
        total += len(others)
    if not items:
        return ""
    shown = items[:MOST]
    rest = total - len(shown)
    url = tests.url if tests and tests.total else page
    more = [f"- …and {rest:,} more: {failure_text.link_line(('all of them', url))}"] if rest else []
    return "\n".join([f"**{text.plural(total, 'failing test')}**, each once:", "", *shown, *more]).rstrip()


def _group(backends: Iterable[Backend]) -> list[_Reported]:
    """Return the tests that backends reported as failed, the same test of several as one."""
    same: dict[tuple[str, str], list[tuple[Backend, Job, FailedTest]]] = {}
    for backend in backends:
        for job in failure_text.by_urgency(backend.failing):
            for test in job.failed_tests:
                same.setdefault((test.classname or "", test.name), []).append((backend, job, test))
    return [_reported(several) for several in same.values()]


def _reported(several: Sequence[tuple[Backend, Job, FailedTest]]) -> _Reported:
    histories = {job.history or History.NO_BASELINE for _, job, _ in several}
    return _Reported(
        test=max((test for _, _, test in several), key=lambda test: bool(test.message)),
        labels=tuple(dict.fromkeys(backend.label for backend, _, _ in several)),
        history=History.NEW if History.NEW in histories else min(histories) if len(histories) == 1 else None,
    )


def _is_same(line: TestLine, reported: _Reported) -> bool:
    test = reported.test
    return any(case.is_reported_as(test.classname, test.name) for case in line.cases)


def _known(line: TestLine, reported: Sequence[_Reported], detail: Detail) -> str:
    parts = [
        f"- {escaping.code(line.name)}",
        escaping.text(line.words),
        f"**{line.verdict}**" if line.verdict else "",
        failure_text.link_line(("history", line.url)),
    ]
    told = reported[0].test if reported else None
    return _with_message(" · ".join(part for part in parts if part), told, detail)


def _item(name: str, one: _Reported, detail: Detail) -> str:
    place = ""
    if one.test.file:
        place = one.test.file if one.test.line is None else f"{one.test.file}:{one.test.line}"
    said = one.history and one.history is not History.NO_BASELINE
    parts = [
        f"- {escaping.code(name)}" + (f" at {escaping.code(place)}" if place else ""),
        f"fails on {text.listing([escaping.code(label) for label in one.labels], limit=BACKENDS)}",
        f"**{one.history}**" if said else "",
    ]
    return _with_message(" · ".join(part for part in parts if part), one.test, detail)


def _with_message(line: str, test: FailedTest | None, detail: Detail) -> str:
    block = failure_text.message_block(test, detail) if test else ""
    return f"{line}\n\n{block}\n" if block else line


def _name(test: FailedTest) -> str:
    return f"{test.classname}.{test.name}" if test.classname else test.name
