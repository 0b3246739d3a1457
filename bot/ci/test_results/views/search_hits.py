"""Searching for tests: by the beginning of a name, by suite or file, and the list that has any part of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import search_rows
from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.web import access
from bot.web.search import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.test_results.tables import SuiteRow, TestRow
    from bot.web.asked import Asked
    from bot.web.search import Words

START = "test_"  # may be left out
SUITES = 5
SEPARATORS = ("::", ".")  # between suite and name, as people copy them


async def find_hits(asked: Asked, words: Words, limit: int) -> list[Hit]:
    """Return tests and suites, and a link to the repository's list of tests for these words."""
    if words.number is not None:
        return []
    private = access.reads_private(asked.request)
    shown = await record_reads.shown_repositories(asked.tx, asked.hidden, private=private)
    hits = []
    if len(words.text.split()) == 1:
        suite, name = _split(words.text)
        hits += await _tests(asked, shown, suite, name, limit)
        suites = await search_rows.suites_by_name(asked.tx, shown.keys(), words.text, limit=SUITES)
        hits += [_suite(row, shown[row["repository_id"]]) for row in suites]
    return [*hits, *await _beside_upstream(asked, words), *_lists(asked, words)]


def _split(text: str) -> tuple[str, str]:
    """Return suite and name of a test that is written with both; the suite is empty otherwise."""
    for separator in SEPARATORS:
        place, found, name = text.rpartition(separator)
        if found and name and place:
            return place.rpartition(separator)[2], name
    return "", text


async def _tests(asked: Asked, shown: Mapping[int, str], suite: str, name: str, limit: int) -> list[Hit]:
    starts = [name] if name.startswith(START) else [name, START + name]
    found: list[TestRow] = []
    for start in starts:
        found += await search_rows.tests_by_name(asked.tx, shown.keys(), start, limit=limit)
    mine = [row for row in found if not suite or row["suite"].endswith(suite)]
    return [_test(row, shown[row["repository_id"]]) for row in mine[:limit]]


def _test(row: TestRow, repo: str) -> Hit:
    return Hit(
        kind="test",
        title=row["name"],
        path=f"/{repo}/test/{identity.shown_digest(row['digest'])}",
        repo=repo,
        detail=" ".join(one for one in (row["suite"], row["file"]) if one),
    )


def _suite(row: SuiteRow, repo: str) -> Hit:
    query = urlencode({"suite": row["suite"], "sort": "name"})
    return Hit(
        kind="test",
        title=row["suite"] or row["file"],
        path=f"/{repo}/tests/file/{quote(row['file'])}"
        if row["file"] and not row["suite"]
        else f"/{repo}/tests?{query}",
        repo=repo,
        detail=f"suite, {row['file']}" if row["file"] else "suite",
    )


async def _beside_upstream(asked: Asked, words: Words) -> list[Hit]:
    """Return the way to the tests of the backend that the text names."""
    allowlist = await allowlists.in_force(asked.tx)
    if allowlist is None or all(map(asked.hidden.has, asked.settings.upstream_repo)):
        return []
    return [
        Hit(
            kind="list",
            title=f"Tests of {one.device or one.repo} beside upstream",
            path=f"/oot/{one.repo}/tests",
        )
        for one in allowlist.entries
        if words.folded in {one.key, (one.device or one.repo).casefold()}
    ]


def _lists(asked: Asked, words: Words) -> list[Hit]:
    query = urlencode({"q": words.text, "sort": "name"})
    return [
        Hit(
            kind="list",
            title=f"Tests with “{words.text}” in name, suite or file",
            path=f"/{repo}/tests?{query}",
            repo=repo,
        )
        for repo in asked.settings.upstream_repo
        if not asked.hidden.has(repo)
    ]
