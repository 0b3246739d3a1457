"""GET /oot/{org}/{repo}/tests and /api/ci/parity/{org}/{repo}: a backend's tests held against upstream's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.test_results.store import parity_reads
from bot.ci.test_results.views import on_head
from bot.core.errors import Rejected
from bot.ingest import watched
from bot.oot.allowlist import rows as allowlists
from bot.web import access, parameters
from bot.web.answers import Answer, send
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.page_cache import tagged

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.parity import Compared, Parity
    from bot.ci.test_results.store.parity_reads import Sides
    from bot.ci.test_results.views.on_head import SameTest
    from bot.db.transaction import Transaction

FILES = 200  # of the page; the JSON has up to MOST
MOST = 5_000
ONLY_HERE = 100
LONGEST = 50  # characters of a device


class ParityOf(Struct, frozen=True, kw_only=True):
    """Tests that upstream passes, by what they come to on the backend."""

    file: Annotated[str, Meta(description="of upstream; empty: all of them")]
    tests: Annotated[int, Meta(description="that upstream passes on this device")]
    passed: int
    failed: int
    skipped: int
    missing: Annotated[int, Meta(description="that the backend does not run")]
    conformance: Annotated[float | None, Meta(description="passed / tests")]


class ParityAnswer(Answer, frozen=True, kw_only=True):
    """A backend beside upstream on one commit"""

    backend: str
    upstream: str
    sha: str
    device: Annotated[str, Meta(description="of upstream's jobs; empty: they do not say")]
    whole: ParityOf
    only_theirs: Annotated[int, Meta(description="tests that the backend runs and upstream does not")]
    files: Annotated[
        list[ParityOf], Meta(description="those with the most tests that the backend lacks or fails first")
    ]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A backend beside upstream, and what fails on it only."""

    repo: str
    upstream: str
    both: Sides | None
    parity: Compared | None
    only_here: list[SameTest]


@page
async def backend(request: web.Request) -> web.Response:
    """Show how a backend stands beside upstream."""
    async with request.app[CONTEXT].store.read() as tx:
        found = await _find(request, tx)
    both = found.both
    query = parameters.query({"sha": both.sha, "device": both.device}) if both else ""
    return render(
        request,
        "backend_tests.html",
        fresh=parameters.of(request),
        found=found,
        both=both,
        files=_ordered(found.parity) if found.parity else [],
        most=FILES,
        json_url=f"/api/ci/parity/{found.repo}?{query}" if both else "",
    )


@tagged
async def parity_json(request: web.Request) -> web.Response:
    """Answer with how a backend stands beside upstream."""
    async with request.app[CONTEXT].store.read() as tx:
        found = await _find(request, tx)
    if found.both is None or found.parity is None:
        raise Rejected(
            404, "no_comparison", f"no commit is known on which {found.repo} and upstream both ran tests"
        )
    return send(
        ParityAnswer(
            backend=found.repo,
            upstream=found.upstream,
            sha=found.both.sha,
            device=found.both.device,
            whole=_of("", found.parity.whole),
            only_theirs=found.parity.only_theirs,
            files=[_of(file, one) for file, one in _ordered(found.parity)[:MOST]],
        )
    )


async def _find(request: web.Request, tx: Transaction) -> _Found:
    repo, sha = parameters.repo(request, "org"), parameters.sha(request)
    device = parameters.given(request, "device")[:LONGEST]
    listed = await allowlists.in_force(tx)
    entry = listed.find(repo) if listed else None
    owners = await job_reads.visible(request, tx, entry.repo if entry else repo)
    settings = request.app[CONTEXT].settings
    upstream = settings.upstream_repo[0]
    if not owners and (entry is None or (await access.hidden_from(request, tx, entry.repo)).has(entry.repo)):
        raise Rejected(404, "unknown_backend", f"nothing of {repo} may be shown here")
    if not owners:  # as long as nobody has said that it is public
        return _Found(repo=repo, upstream=upstream, both=None, parity=None, only_here=[])
    hidden = (await access.hidden_from(request, tx, *settings.upstream_repo)).ids
    both = await parity_reads.read_sides(tx, owners, sha, device, hidden)
    if both is None:
        return _Found(repo=repo, upstream=upstream, both=None, parity=None, only_here=[])
    upstream = both.upstream[0]["upstream_repo"] or upstream
    labels = {one.key: one.label for one in listed.entries} if listed else {}
    head = await on_head.read_head(tx, upstream, await watched.ids(tx, upstream), both.sha, labels)
    failing = await on_head.failing_tests(tx, head, repo=upstream)
    only_here = [one for one in failing if one.fails_only_on(owners)]
    return _Found(
        repo=repo,
        upstream=upstream,
        both=both,
        parity=await parity_reads.compared(tx, both),
        only_here=only_here[:ONLY_HERE],
    )


def _ordered(compared: Compared) -> list[tuple[str, Parity]]:
    """Return the files, those with the most tests that are not passed first."""
    return sorted(compared.files.items(), key=lambda item: (item[1].passed - item[1].tests, item[0]))


def _of(file: str, one: Parity) -> ParityOf:
    return ParityOf(
        file=file,
        tests=one.tests,
        passed=one.passed,
        failed=one.failed,
        skipped=one.skipped,
        missing=one.missing,
        conformance=one.conformance,
    )
