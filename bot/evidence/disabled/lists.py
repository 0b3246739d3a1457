"""The lists that CI reads: made of issues in the form of PyTorch's CI, stored, cached and sent with an ETag."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import sqlalchemy as sa
from aiohttp import web

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.evidence.disabled import issue_text
from bot.evidence.disabled.tables import ListMark, ci_list
from bot.web import access, page_cache
from bot.web.page_cache import CachedPage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from bot.db.transaction import Transaction
    from bot.evidence.disabled.tables import DisablingRow

# by test: number and address of an issue, platforms (none: all)
Tests = dict[str, tuple[str, str, list[str]]]
# by name: author, number and address of an issue, workflow, platform, configuration
Jobs = dict[str, tuple[str, str, str, str, str, str]]
LIST = ci_list.c
SAME_LIST = (LIST.repository_id == sa.bindparam("repository_id"), LIST.name == sa.bindparam("name"))
MARK = RowStatement(select(ListMark, ci_list).where(*SAME_LIST))
BODY = Statement(sa.select(LIST.body).where(*SAME_LIST))
GZIPPED = Statement(sa.select(LIST.gzipped).where(*SAME_LIST))
MOST_BYTES = 16 * 1024 * 1024
MOST_OF_ONE = 4 * 1024 * 1024  # bytes: uncompressed, PyTorch's longest list has over ten megabytes
MOST = 100  # entries
T = TypeVar("T")
CONTROL = "public, max-age=300"


def disabled_tests(issues: Iterable[DisablingRow]) -> Tests:
    """Return the disabled tests, each on the platforms of all its issues; no platform means all.

    The issue named is the one with the lowest number.
    """
    tests: Tests = {}
    for issue in _in_order(issues, "test", unstable=False):
        _add(tests, {name: (str(issue["number"]), issue["url"] or "", on) for name, on in issue["entries"]})
    return tests


def for_backend(upstream: Tests, own: Tests, device: str | None) -> Tests:
    """Return the tests that a backend may skip: those upstream disables on its device, and its own."""
    tests = {
        name: test for name, test in upstream.items() if not test[2] or (device or "").casefold() in test[2]
    }
    _add(tests, own)
    return tests


def disabled_jobs(issues: Iterable[DisablingRow]) -> Jobs:
    """Return the jobs that are skipped."""
    return _jobs(issues, unstable=False)


def unstable_jobs(issues: Iterable[DisablingRow]) -> Jobs:
    """Return the jobs that may fail."""
    return _jobs(issues, unstable=True)


LISTS: dict[str, Callable[[Iterable[DisablingRow]], dict[str, Any]]] = {
    "disabled-tests-condensed": disabled_tests,
    "disabled-jobs": disabled_jobs,
    "unstable-jobs": unstable_jobs,
}


async def store_list(tx: Transaction, repository_id: int, name: str, page: CachedPage) -> bool:
    """Store a list; return whether it differs from the previous one."""
    before = await find_mark(tx, repository_id, name)
    if before and before["etag"] == page.etag:
        mine = (LIST.repository_id == repository_id, LIST.name == name)
        await tx.run(sa.update(ci_list).where(*mine).values(made_at=tx.now))
        return False
    new = {"body": page.body, "gzipped": page.gzipped, "etag": page.etag, "made_at": tx.now}
    row = {"repository_id": repository_id, "name": name} | new
    await tx.upsert(ci_list, [row], replaced=list(new))
    tx.note_changed("ci_list", [row])
    return True


async def find_mark(tx: Transaction, repository_id: int, name: str) -> ListMark | None:
    """Return the mark of the last version of a list."""
    return await tx.fetch_first(MARK, {"repository_id": repository_id, "name": name})


async def last_body(tx: Transaction, repository_id: int, name: str) -> bytes | None:
    """Return the last version of a list."""
    body: bytes | None = (await tx.run(BODY, {"repository_id": repository_id, "name": name})).scalar()
    return body


async def gzipped_body(tx: Transaction, mark: ListMark) -> bytes:
    """Return the compressed body of a list; empty if it is small."""
    key = {"repository_id": mark["repository_id"], "name": mark["name"]}
    content: bytes = (await tx.run(GZIPPED, key)).scalar_one()
    return content


class BytesCache(Generic[T]):
    """A cache of the most recently used entries, bounded in bytes; only the render thread uses it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def find(self, key: Hashable) -> T | None:
        """Return an entry, if there is one."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def store(self, key: Hashable, value: T, size: int) -> None:
        """Add an entry of this size unless it is too large; drop the least recently used ones."""
        if size > MOST_OF_ONE:
            return
        _, before = self._entries.pop(key, (None, 0))
        self._entries[key] = (value, size)
        self._bytes += size - before
        while self._bytes > MOST_BYTES or len(self._entries) > MOST:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._bytes -= dropped


SENT_LISTS: web.AppKey[BytesCache[CachedPage]] = web.AppKey("sent_lists", BytesCache)


def seal_list(content: Mapping[str, object]) -> CachedPage:
    """Encode a list as it is sent."""
    body = msgspec.json.encode(content, order="sorted")
    return page_cache.seal_page(web.Response(body=body, content_type="application/json", charset="utf-8"))


async def page_for_request(tx: Transaction, request: web.Request, made: ListMark) -> CachedPage:
    """Load only as much of a list as the answer to a request needs: it may be large."""
    if any(tag.value == made["etag"] for tag in request.if_none_match or ()):
        return _page(made)
    compressed = "gzip" in request.headers.get("Accept-Encoding", "")
    # but for the moment it was made at: half hourly it is mostly the same list
    key, cache = (made["repository_id"], made["name"], made["etag"], compressed), request.app[SENT_LISTS]
    page = cache.find(key)
    if page is None:
        gzipped = await gzipped_body(tx, made) if compressed else b""
        body = b"" if gzipped else await last_body(tx, made["repository_id"], made["name"]) or b""
        page = _page(made, body, gzipped)
        cache.store(key, page, len(body) + len(gzipped))
    return page


def send_list(request: web.Request, page: CachedPage) -> web.Response:
    """Send a list; private ones are not cached."""
    control = page_cache.NOT_STORED if access.reads_private(request) else CONTROL
    return page_cache.send_page(request, page, control=control)


def _jobs(issues: Iterable[DisablingRow], *, unstable: bool) -> Jobs:
    jobs: Jobs = {}
    for issue in _in_order(issues, "job", unstable=unstable):
        for name, _ in issue["entries"]:
            parts = issue_text.job_parts(name)
            jobs.setdefault(name, (issue["author"] or "", str(issue["number"]), issue["url"] or "", *parts))
    return jobs


def _add(tests: Tests, more: Tests) -> None:
    for name, (number, url, platforms) in more.items():
        first, address, before = tests.get(name, (number, url, platforms))
        tests[name] = (first, address, sorted({*before, *platforms}) if before and platforms else [])


def _in_order(issues: Iterable[DisablingRow], kind: str, *, unstable: bool) -> list[DisablingRow]:
    """Return the effective issues of a kind, by number."""
    wanted = (
        issue
        for issue in issues
        if issue["listed"] and (issue["kind"], issue["unstable"]) == (kind, unstable)
    )
    return sorted(wanted, key=lambda issue: issue["number"])


def _page(made: ListMark, body: bytes = b"", gzipped: bytes = b"") -> CachedPage:
    content_type = "application/json; charset=utf-8"
    return CachedPage(body=body, gzipped=gzipped, etag=made["etag"], content_type=content_type, expires_at=0)
