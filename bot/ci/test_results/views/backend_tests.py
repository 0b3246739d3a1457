"""GET /oot/{org}/{repo}/tests and /api/ci/parity/{org}/{repo}: a backend's tests held against upstream's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.collect import job_reads
from bot.ci.test_results.job_tables import JobCounts
from bot.ci.test_results.store import parity_reads
from bot.ci.test_results.tables import test
from bot.ci.test_results.views import on_head
from bot.ci.test_results.views.compare_tests import SHA as ANY_SHA
from bot.ci.test_results.views.heads import CACHED
from bot.ci.test_results.views.test_list import NO_BACKEND
from bot.ingest import watched
from bot.oot.allowlist import rows as allowlists
from bot.web import access, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.refusals import NOT_FOUND, Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.ci.test_results.parity import Compared, Parity
    from bot.ci.test_results.store.parity_reads import Sides
    from bot.ci.test_results.views.on_head import SameTest
    from bot.web.asked import Asked

FILES = 200  # of the page; the JSON has up to MOST
MOST = 5_000
ONLY_HERE = 100
BACKEND = declare.repository("org")
SHA = declare.parsed(
    "sha",
    ANY_SHA,
    "a commit of upstream, or its beginning; without it the newest that both tested",
    parse=parameters.commit,
    default="",
)
DEVICE = declare.text("device", "of upstream's jobs; without it cuda, where upstream ran there", most=50)
NO_COMPARISON = Refused(404, "no_comparison", "there is no commit on which both ran tests")


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
class Found:
    """A backend beside upstream, and what fails on it only."""

    repo: str
    upstream: str
    both: Sides | None = None
    parity: Compared | None = None
    only_here: list[SameTest] = field(default_factory=list)


async def can_compare(asked: Asked, repo: str) -> bool:
    """Whether a repository is a backend whose tests are known."""
    listed = await allowlists.in_force(asked.tx)
    is_backend = listed is not None and listed.find(repo) is not None
    return is_backend and await job_reads.has_rows(asked, repo, test.c.repository_id)


async def read_backend_tests(asked: Asked) -> Found:
    """Read how a backend stands beside upstream."""
    request, tx, repo = asked.request, asked.tx, asked[BACKEND]
    listed = await allowlists.in_force(tx)
    entry = listed.find(repo) if listed else None
    owners = await job_reads.visible(request, tx, entry.repo if entry else repo)
    upstream = asked.settings.upstream_repo[0]
    if not owners and (entry is None or (await access.hidden_from(request, tx, entry.repo)).has(entry.repo)):
        raise NO_BACKEND.because(f"nothing of {repo} may be shown here")
    if not owners:  # as long as GitHub has not said that it is public
        return Found(repo=repo, upstream=upstream)
    hidden = (await access.hidden_from(request, tx, *asked.settings.upstream_repo)).ids
    both = await parity_reads.read_sides(tx, owners, asked[SHA], asked[DEVICE], hidden)
    if both is None:
        return Found(repo=repo, upstream=upstream)
    upstream = both.upstream[0]["upstream_repo"] or upstream
    labels = {one.key: one.label for one in listed.entries} if listed else {}
    head = await on_head.read_head(tx, upstream, await watched.ids(tx, upstream), both.sha, labels)
    failing = await on_head.failing_tests(tx, head, repo=upstream)
    only_here = [one for one in failing if one.fails_only_on(owners)]
    return Found(
        repo=repo,
        upstream=upstream,
        both=both,
        parity=await parity_reads.compared(tx, both),
        only_here=only_here[:ONLY_HERE],
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    files = _ordered(found.parity) if found.parity else []
    return {"found": found, "both": found.both, "files": files, "most": FILES}


def answer(found: Found) -> ParityAnswer:
    """Return the JSON of how a backend stands beside upstream."""
    if found.both is None or found.parity is None:
        raise NO_COMPARISON.because(f"no commit is known on which {found.repo} and upstream both ran tests")
    return ParityAnswer(
        backend=found.repo,
        upstream=found.upstream,
        sha=found.both.sha,
        device=found.both.device,
        whole=fill(ParityOf, found.parity.whole, file=""),
        only_theirs=found.parity.only_theirs,
        files=[fill(ParityOf, one, file=file) for file, one in _ordered(found.parity)[:MOST]],
    )


def _link(found: Found) -> dict[str, object] | None:
    both = found.both
    return {"repo": found.repo, "sha": both.sha, "device": both.device} if both else None


def _ordered(compared: Compared) -> list[tuple[str, Parity]]:
    """Return the files, those with the most tests that are not passed first."""
    return sorted(compared.files.items(), key=lambda item: (item[1].passed - item[1].tests, item[0]))


VIEW = View(
    read=read_backend_tests,
    parameters=(BACKEND, SHA, DEVICE),
    page=Page(path="/oot/{org}/{repo}/tests", template="backend_tests.html", values=show),
    json=Json(
        path="/api/ci/parity/{org}/{repo}",
        answer=answer,
        content=ParityAnswer,
        name="parity",
        summary="A backend's tests held against upstream's own",
        topic=op.CI,
        description=CACHED,
        refusals=(NOT_FOUND, NO_BACKEND, NO_COMPARISON),
        etag=True,
        link=_link,
    ),
)
