"""GET /{owner}/{repo}/run/{id}/ran and its JSON: what a run tested, file by file, beside what it usually does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.extras.what_ran import file_counts, file_rows, miss_rows
from bot.ci.extras.what_ran.file_counts import Change
from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import exclusions, result_rows, rows
from bot.ci.test_results.views import failing, on_head
from bot.web import html
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, one_of
from bot.web.refusals import Refused
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.ci.extras.what_ran.file_counts import FileLine
    from bot.ci.extras.what_ran.miss_rows import NamedMiss
    from bot.ci.test_results.few_tests import FewTests
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.store.result_rows import FailingRow
    from bot.ingest.rows import WorkflowRunRow
    from bot.web.asked import Asked

FAMILIES, FILES = 40, 60  # shown, of one family
NO_RUN = Refused(404, "not_found", "not the name of a repository, or no run of that id may be shown")
ID = declare.identifier("id", "GitHub's id of the run")
WORDS = {
    Change.NEW: "new",
    Change.GONE: "did not run",
    Change.LEFT_OUT: "left out by selection",
    Change.FEWER: "fewer tests",
    Change.SLOWER: "slower",
    Change.SAME: "",
}


class RanFile(Struct, frozen=True, kw_only=True):
    """The tests of a file in some jobs."""

    file: str
    count: int
    time: Annotated[float, Meta(description="seconds")]
    skipped: int
    failures: int
    errors: int
    successes: int
    short_job_name: str
    usual: Annotated[int, Meta(description="tests in the newest trusted run of the same jobs")]
    change: Annotated[str, one_of(Change)]


class RerunTest(Struct, frozen=True, kw_only=True):
    """A test that was tried more than once."""

    test: Annotated[str, Meta(description="as in its page's address")]
    attempts: int
    failed_attempts: int
    outcome: str


class MissedTest(Struct, frozen=True, kw_only=True):
    """A test that failed here, whose file a pull request had left out."""

    test: str
    file: str
    name: str
    pull_request: int


ByJob = dict[str, dict[str, Any]]


class RanFiles(Answer, frozen=True, kw_only=True):
    """What a run tested; maps from what is built to its configurations"""

    few: Annotated[dict[str, str], Meta(description="jobs that ran far fewer tests than usual, in words")]
    td_exclusions: Annotated[
        dict[str, dict[str, list[str]]], Meta(description="files that jobs left out on purpose")
    ]
    reruns: Annotated[
        dict[str, dict[str, dict[str, dict[str, dict[str, list[RerunTest]]]]]],
        Meta(description="tests that were tried more than once, by file, class and name"),
    ]
    invoking_file_summary: dict[str, dict[str, dict[str, RanFile]]]
    missed: Annotated[list[MissedTest], Meta(description="what selection missed in this run")]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Jobs that are the same but for shard and runner."""

    name: str
    jobs: list[TestJobRow]
    files: list[FileLine]
    left_out: list[str]
    few: FewTests | None

    @property
    def build(self) -> str:
        """What is built."""
        return self.jobs[0]["base_name"]

    @property
    def config(self) -> str:
        """The configuration."""
        return self.jobs[0]["config"]

    @property
    def changed(self) -> list[FileLine]:
        """The files that differ from what usually runs."""
        return [one for one in self.files if one.change != Change.SAME]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run tested."""

    run: WorkflowRunRow
    families: list[Family]
    reruns: list[tuple[Family, FailingRow]]
    missed: list[NamedMiss]


async def read_ran(asked: Asked) -> Found:
    """Read what a run tested; raises Rejected 404."""
    tx = asked.tx
    shown = await job_reads.visible_to(asked, asked[REPO])
    run = (await job_reads.shown_attempts(tx, shown, asked[ID]))[0]
    jobs = rows.newest_attempts(await rows.jobs_of_run(tx, run["repository_id"], run["id"]))
    by_family: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for job in jobs:
        if not job["rerun_disabled"]:
            by_family[job["family"]].append(job)
    families = [await _family(asked, name, by_family[name]) for name in sorted(by_family)[:FAMILIES]]
    families.sort(
        key=lambda one: (one.few is None, bool(one.few and one.few.files), -len(one.changed), one.name)
    )
    return Found(
        run=run,
        families=families,
        reruns=await _reruns(asked, families),
        missed=await miss_rows.misses_of_run(tx, run["repository_id"], run["id"]),
    )


async def _family(asked: Asked, name: str, jobs: list[TestJobRow]) -> Family:
    tx = asked.tx
    left_out = await exclusions.files_of(tx, jobs)
    now, usual = await file_rows.counts_of_jobs(tx, jobs), await file_rows.usual_counts(tx, jobs[0])
    return Family(
        name=name,
        jobs=jobs,
        files=file_counts.compare(now, usual or now, left_out),
        left_out=sorted(left_out),
        few=await on_head.compare_family(tx, jobs[0]["repository_id"], name, jobs),
    )


async def _reruns(asked: Asked, families: Sequence[Family]) -> list[tuple[Family, FailingRow]]:
    of_job = {job["generation"]: family for family in families for job in family.jobs}
    cases = await result_rows.failing_cases(asked.tx, sorted(of_job))
    return [(of_job[case["generation"]], case) for case in cases if case["attempts"] > 1]


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    run = found.run
    return {"repo": run["repo"], "run": run, "found": found, "most": FILES, "change_words": WORDS}


def answer(found: Found) -> RanFiles:
    """Return the JSON in the shapes of PyTorch's test dashboard."""
    excluded: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    summary: ByJob = {}
    for family in found.families:
        if family.left_out:
            excluded[family.build][family.config] = family.left_out
        summary.setdefault(family.build, {})[family.config] = {
            one.file: _ran_file(family, one) for one in family.files
        }
    return RanFiles(
        few={one.name: str(one.few) for one in found.families if one.few},
        td_exclusions=dict(excluded),
        reruns=_nested_reruns(found),
        invoking_file_summary=summary,
        missed=[
            MissedTest(
                test=identity.shown_digest(one.test["digest"]),
                file=one.row["file"],
                name=one.test["name"],
                pull_request=one.row["pr_number"],
            )
            for one in found.missed
        ],
    )


def _ran_file(family: Family, one: FileLine) -> RanFile:
    return RanFile(
        file=one.file,
        count=one.now.tests,
        time=one.now.time_ms / 1000,
        skipped=one.now.skipped,
        failures=one.now.failures,
        errors=one.now.errors,
        successes=one.now.successes,
        short_job_name=f"{family.build} / test ({family.config})",
        usual=one.usual.tests,
        change=one.change.value,
    )


def _nested_reruns(found: Found) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for family, case in found.reruns:
        place = nested.setdefault(family.build, {}).setdefault(family.config, {})
        place = place.setdefault(case["file"], {}).setdefault(case["suite"], {})
        place.setdefault(case["name"], []).append(
            RerunTest(
                test=identity.shown_digest(case["digest"]),
                attempts=case["attempts"],
                failed_attempts=case["failed_attempts"],
                outcome=failing.outcome(case["outcome"], flaky=case["flaky"]),
            )
        )
    return nested


VIEW = View(
    read=read_ran,
    parameters=(REPO, ID),
    page=Page(path=rf"{REPOSITORY}/run/{{id:\d+}}/ran", template="what_ran.html", values=show),
    json=Json(
        path=r"/api/ci/runs/{owner}/{repo}/{id:\d+}/ran",
        answer=answer,
        content=RanFiles,
        name="runRan",
        summary="What a run tested, file by file",
        topic=op.CI,
        refusals=(NO_RUN,),
        link=lambda found: {"repo": found.run["repo"], "id": found.run["id"]},
    ),
)
VIEWS = (VIEW,)


def setup(app: web.Application) -> None:
    """Add what the template uses."""
    html.add_names(app, filters={"shown_digest": identity.shown_digest})
