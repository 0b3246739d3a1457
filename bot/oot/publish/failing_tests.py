"""Markdown of the tests that fail on backends: each once, with its backends, its verdict and its message. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.publish import failure_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.publish.failure_text import Detail
    from bot.oot.verdict.failure import Failure, FailureList
    from bot.oot.verdict.view import Backend

MOST = 10  # that are named
BACKENDS = 8  # named of one test


def describe_tests(failures: FailureList, backends: Sequence[Backend], detail: Detail, page: str) -> str:
    """Return the list of tests that fail on some backends; empty without any. `page`: where all are."""
    repos = {one.repo.lower() for one in backends}
    found = [one for one in failures.all if one.is_test and repos & one.on.keys()]
    total = len(found) + failures.tests_left
    if not found:
        return ""
    items = [_item(one, repos, detail) for one in found[:MOST]]
    rest = total - len(items)
    more = [f"- …and {rest:,} more: {failure_text.link_line(('all of them', page))}"] if rest else []
    return "\n".join([f"**{text.plural(total, 'failing test')}**, each once:", "", *items, *more]).rstrip()


def _item(one: Failure, repos: set[str], detail: Detail) -> str:
    told = next((each for each in one.details if each.message), next(iter(one.details), None))
    place = told.place if told and not one.url else ""
    labels = dict.fromkeys(job.label for job in one.jobs if job.key.repo in repos)
    where = f"fails on {text.listing([escaping.code(label) for label in labels], limit=BACKENDS)}"
    parts = [
        f"- {escaping.code(one.name)}" + (f" at {escaping.code(place)}" if place else ""),
        escaping.text(one.words) if one.words else where,
        f"**{one.kind}**" if one.kind else "",
        *(f"{escaping.code(label)}: {other.word}" for label, other in one.differing if other.word),
        failure_text.link_line(("history", one.url)),
    ]
    line = " · ".join(part for part in parts if part)
    block = failure_text.message_block(told.message, told.trace, detail) if told else ""
    return f"{line}\n\n{block}\n" if block else line
