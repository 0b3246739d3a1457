"""What a run tested, file by file, beside what is usual: a page, its JSON, and a section of the run's page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.core.escaping import clean, shorten
from bot.evidence.tests import failing, job_parts, result_rows, rows
from bot.evidence.tests.parse import texts
from bot.job_reports import selected_tests
from bot.job_reports.selected_tests import FileChange
from bot.pages import job_reads
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, one_of
from bot.web.blocks import Block, BlockLine
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.failing import FewTests
    from bot.evidence.tests.result_rows import FailingRow
    from bot.evidence.tests.tables import TestJobRow
    from bot.ingest.record_rows import WorkflowRunRow
    from bot.job_reports.selected_tests import FileComparison, NamedMissedTest
    from bot.web.blocks import RunSubject, Tone
    from bot.web.parameters import Query

FAMILIES_SHOWN, FILES_SHOWN = 40, 60  # shown, of one family
NO_RUN = DeclaredRefusal(404, "not_found", "not the name of a repository, or no run of that id may be shown")
ID = declare.identifier("id", "GitHub's id of the run")
CHANGE_WORDS = {
    FileChange.NEW: "new",
    FileChange.GONE: "did not run",
    FileChange.LEFT_OUT: "left out by selection",
    FileChange.FEWER: "fewer tests",
    FileChange.SLOWER: "slower",
    FileChange.SAME: "",
}
ByJob = dict[str, dict[str, Any]]
FAMILIES_TOLD, MISSES_TOLD, NAME_MOST = 40, 10, 300


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
    change: Annotated[str, one_of(FileChange)]


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
class TestedRun:
    """What a run tested."""

    run: WorkflowRunRow
    families: list[TestedFamily]
    reruns: list[tuple[TestedFamily, FailingRow]]
    missed: list[NamedMissedTest]


@dataclass(frozen=True, kw_only=True)
class TestedFamily:
    """Jobs that are the same but for shard and runner."""

    name: str
    jobs: list[TestJobRow]
    files: list[FileComparison]
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
    def changed(self) -> list[FileComparison]:
        """The files that differ from what usually runs."""
        return [line for line in self.files if line.change != FileChange.SAME]


async def read_ran(query: Query) -> TestedRun:
    """Read what a run tested; raises Rejected 404."""
    tx = query.tx
    shown = await job_reads.visible_ids_of(query, query[REPO])
    run = (await job_reads.shown_attempts(tx, shown, query[ID]))[0]
    jobs = rows.newest_attempts(await rows.jobs_of_run(tx, run["repository_id"], run["id"]))
    by_family: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for job in jobs:
        if not job["rerun_disabled"]:
            by_family[job["family"]].append(job)
    families = [await _family(query, name, by_family[name]) for name in sorted(by_family)[:FAMILIES_SHOWN]]
    families.sort(
        key=lambda jobs: (jobs.few is None, bool(jobs.few and jobs.few.files), -len(jobs.changed), jobs.name)
    )
    return TestedRun(
        run=run,
        families=families,
        reruns=await _reruns(query, families),
        missed=await selected_tests.misses_of_run(tx, run["repository_id"], run["id"]),
    )


def page_values(tested: TestedRun) -> dict[str, Any]:
    """Return what the page shows."""
    run = tested.run
    return {
        "repo": run["repo"],
        "run": run,
        "tested": tested,
        "most": FILES_SHOWN,
        "change_words": CHANGE_WORDS,
    }


def json_answer(tested: TestedRun) -> RanFiles:
    """Return the JSON in the shapes of PyTorch's test dashboard."""
    excluded: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    summary: ByJob = {}
    for family in tested.families:
        if family.left_out:
            excluded[family.build][family.config] = family.left_out
        summary.setdefault(family.build, {})[family.config] = {
            line.file: _ran_file(family, line) for line in family.files
        }
    return RanFiles(
        few={family.name: str(family.few) for family in tested.families if family.few},
        td_exclusions=dict(excluded),
        reruns=_nested_reruns(tested),
        invoking_file_summary=summary,
        missed=[
            MissedTest(
                test=texts.shown_digest(miss.test["digest"]),
                file=miss.row["file"],
                name=miss.test["name"],
                pull_request=miss.row["pr_number"],
            )
            for miss in tested.missed
        ],
    )


VIEW = View(
    read=read_ran,
    parameters=(REPO, ID),
    page=Page(path=rf"{REPOSITORY}/run/{{id:\d+}}/ran", template="what_ran.html", values=page_values),
    json=Json(
        path=r"/api/ci/runs/{owner}/{repo}/{id:\d+}/ran",
        answer=json_answer,
        content=RanFiles,
        name="runRan",
        summary="What a run tested, file by file",
        topic=op.CI,
        refusals=(NO_RUN,),
        link=lambda tested: {"repo": tested.run["repo"], "id": tested.run["id"]},
    ),
)


async def show_run(tx: Transaction, subject: RunSubject) -> list[Block]:
    """Return what a run tested, in short."""
    jobs = rows.newest_attempts(await rows.jobs_of_run(tx, subject.repository_id, subject.run_id))
    if not jobs:
        return []
    page = f"/{subject.repo}/run/{subject.run_id}/ran"
    lines = await _few_tests_lines(tx, subject.repository_id, jobs, page)
    left_out = await job_parts.excluded_files(tx, jobs)
    if left_out:
        lines.append(BlockLine(text=f"{len(left_out):,} files left out by selection", url=page, tone="idle"))
    for miss in (await selected_tests.misses_of_run(tx, subject.repository_id, subject.run_id))[:MISSES_TOLD]:
        number = miss.row["pr_number"]
        text = f"{miss.test['name']} failed here, and #{number} had left {miss.row['file']} out"
        address = f"/{subject.repo}/test/{texts.shown_digest(miss.test['digest'])}"
        lines.append(BlockLine(text=_short(text), url=address, tone="bad"))
    ran = sum(job["tests"] - job["skipped"] for job in jobs)
    lines.append(BlockLine(text=f"{ran:,} tests ran: file by file", url=page))
    return [Block(heading="What ran", lines=tuple(lines))]


async def _family(query: Query, name: str, jobs: list[TestJobRow]) -> TestedFamily:
    tx = query.tx
    left_out = await job_parts.excluded_files(tx, jobs)
    now, usual = await selected_tests.counts_of_jobs(tx, jobs), await selected_tests.usual_counts(tx, jobs[0])
    return TestedFamily(
        name=name,
        jobs=jobs,
        files=selected_tests.compare_files(now, usual or now, left_out),
        left_out=sorted(left_out),
        few=await failing.compare_family(tx, jobs[0]["repository_id"], name, jobs),
    )


async def _reruns(query: Query, families: Sequence[TestedFamily]) -> list[tuple[TestedFamily, FailingRow]]:
    of_job = {job["generation"]: family for family in families for job in family.jobs}
    cases = await result_rows.failing_cases(query.tx, sorted(of_job))
    return [(of_job[case["generation"]], case) for case in cases if case["attempts"] > 1]


def _ran_file(family: TestedFamily, line: FileComparison) -> RanFile:
    return RanFile(
        file=line.file,
        count=line.now.tests,
        time=line.now.time_ms / 1000,
        skipped=line.now.skipped,
        failures=line.now.failures,
        errors=line.now.errors,
        successes=line.now.successes,
        short_job_name=f"{family.build} / test ({family.config})",
        usual=line.usual.tests,
        change=line.change.value,
    )


def _nested_reruns(tested: TestedRun) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for family, case in tested.reruns:
        place = nested.setdefault(family.build, {}).setdefault(family.config, {})
        place = place.setdefault(case["file"], {}).setdefault(case["suite"], {})
        place.setdefault(case["name"], []).append(
            RerunTest(
                test=texts.shown_digest(case["digest"]),
                attempts=case["attempts"],
                failed_attempts=case["failed_attempts"],
                outcome=failing.describe_outcome(case["outcome"], flaky=case["flaky"]),
            )
        )
    return nested


async def _few_tests_lines(
    tx: Transaction, repository_id: int, jobs: list[TestJobRow], page: str
) -> list[BlockLine]:
    """Return the jobs that passed with far fewer tests than usual."""
    by_family: defaultdict[str, list[TestJobRow]] = defaultdict(list)
    for job in jobs:
        if not job["rerun_disabled"]:
            by_family[job["family"]].append(job)
    lines = []
    for family in sorted(by_family)[:FAMILIES_TOLD]:
        little = await failing.compare_family(tx, repository_id, family, by_family[family])
        if little:
            tone: Tone = "idle" if little.files else "warn"
            lines.append(BlockLine(text=_short(f"{family}: passed, but {little}"), url=page, tone=tone))
    return lines


def _short(text: str) -> str:
    return shorten(" ".join(clean(text).split()), NAME_MOST)
