"""A backend's tests compared with upstream's own: page and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.evidence.tests import comparing, failing
from bot.evidence.tests.tables import JobCounts, test
from bot.ingest import repositories
from bot.oot.allowlist import versions as allowlists
from bot.pages import job_reads
from bot.pages.tests.commits import CACHED, WholeSha
from bot.pages.tests.test_list import NO_BACKEND
from bot.web import access, addresses, openapi, parameters
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.openapi import NOT_FOUND, DeclaredRefusal
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.evidence.tests.comparing import Parity, ParityComparison, Sides
    from bot.evidence.tests.failing import SameTest
    from bot.web.parameters import Query

FILES = 200  # of the page; the JSON has up to MOST
MOST = 5_000
ONLY_HERE = 100
BACKEND = parameters.repository("org")
SHA = parameters.parsed(
    "sha",
    WholeSha,
    "a commit of upstream, or its beginning; without it the newest that both tested",
    parse=addresses.commit,
    default="",
)
DEVICE = parameters.text("device", "of upstream's jobs; without it cuda, where upstream ran there", most=50)
NO_COMPARISON = DeclaredRefusal(404, "no_comparison", "there is no commit on which both ran tests")


class ParityOf(
    RowAnswer,
    row=JobCounts,
    only=("file", "tests", "passed", "failed", "skipped", "missing", "conformance"),
    frozen=True,
    kw_only=True,
):
    """Tests that upstream passes, by what they come to on the backend."""

    file: Annotated[str, Meta(description="of upstream; empty: all of them")]
    tests: Annotated[int, Meta(description="that upstream passes on this device")]
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
class BackendParity:
    """A backend compared with upstream, and the tests that fail only there."""

    repo: str
    upstream: str
    both: Sides | None = None
    parity: ParityComparison | None = None
    only_here: list[SameTest] = field(default_factory=list)


async def can_compare(query: Query, repo: str) -> bool:
    """Whether a repository is a backend whose tests are known."""
    listed = await allowlists.read_in_force(query.tx)
    is_backend = listed is not None and listed.find(repo) is not None
    return is_backend and await job_reads.has_rows(query, repo, test.c.repository_id)


async def read_backend_tests(query: Query) -> BackendParity:
    """Read the comparison of a backend with upstream."""
    request, tx, repo = query.request, query.tx, query[BACKEND]
    listed = await allowlists.read_in_force(tx)
    entry = listed.find(repo) if listed else None
    owners = await job_reads.visible_ids(request, tx, entry.repo if entry else repo)
    upstream = query.settings.upstream_repo[0]
    if not owners and (entry is None or (await access.hidden_from(request, tx, entry.repo)).has(entry.repo)):
        raise NO_BACKEND.because(f"nothing of {repo} may be shown here")
    if not owners:  # as long as GitHub has not said that it is public
        return BackendParity(repo=repo, upstream=upstream)
    hidden = (await access.hidden_from(request, tx, *query.settings.upstream_repo)).ids
    both = await comparing.read_sides(tx, owners, query[SHA], query[DEVICE], hidden)
    if both is None:
        return BackendParity(repo=repo, upstream=upstream)
    upstream = both.upstream[0]["upstream_repo"] or upstream
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    head = await failing.read_head(tx, upstream, await repositories.read_ids(tx, upstream), both.sha, labels)
    failing_there = await failing.failing_tests(tx, head, repo=upstream)
    only_here = [test for test in failing_there if test.fails_only_on(owners)]
    return BackendParity(
        repo=repo,
        upstream=upstream,
        both=both,
        parity=await comparing.compare_on_commit(tx, both),
        only_here=only_here[:ONLY_HERE],
    )


def parity_page(backend: BackendParity) -> dict[str, Any]:
    """Return the values of the page."""
    files = _ordered(backend.parity) if backend.parity else []
    return {"backend": backend, "both": backend.both, "files": files, "most": FILES}


def parity_json(backend: BackendParity) -> ParityAnswer:
    """Return the JSON of a backend's comparison with upstream."""
    if backend.both is None or backend.parity is None:
        raise NO_COMPARISON.because(f"no commit is known on which {backend.repo} and upstream both ran tests")
    return ParityAnswer(
        backend=backend.repo,
        upstream=backend.upstream,
        sha=backend.both.sha,
        device=backend.both.device,
        whole=fill_struct(ParityOf, backend.parity.whole, file=""),
        only_theirs=backend.parity.only_theirs,
        files=[fill_struct(ParityOf, parity, file=file) for file, parity in _ordered(backend.parity)[:MOST]],
    )


def _link(backend: BackendParity) -> dict[str, object] | None:
    both = backend.both
    return {"repo": backend.repo, "sha": both.sha, "device": both.device} if both else None


BACKEND_VIEW = View(
    read=read_backend_tests,
    parameters=(BACKEND, SHA, DEVICE),
    page=Page(path="/oot/{org}/{repo}/tests", template="backend_tests.html", values=parity_page),
    json=Json(
        path="/api/ci/parity/{org}/{repo}",
        answer=parity_json,
        content=ParityAnswer,
        name="parity",
        summary="A backend's tests held against upstream's own",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NOT_FOUND, NO_BACKEND, NO_COMPARISON),
        etag=True,
        link=_link,
    ),
)


def _ordered(compared: ParityComparison) -> list[tuple[str, Parity]]:
    """Return the files, those with the most tests not passed first."""
    return sorted(compared.files.items(), key=lambda item: (item[1].passed - item[1].tests, item[0]))
