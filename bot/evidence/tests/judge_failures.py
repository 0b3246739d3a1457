"""Task test_verdicts: judges the failing tests of a commit again. Its key is the commit's SHA."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from bot.evidence.disabled import rows as disabled_rows
from bot.evidence.disabled.rows import platforms_of
from bot.evidence.tests import judging_rows, rows, verdict
from bot.evidence.tests.known_tests import PAUSE, in_batches
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, PASSING, Code
from bot.evidence.tests.rows import tested_commit
from bot.evidence.tests.verdict import NOWHERE, Baseline, Evidence, OtherFailure, TrustedRun, Verdict
from bot.ingest import repositories
from bot.jobs.runs import find_merge_target
from bot.oot.allowlist import versions as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.disabled.rows import DisabledHere
    from bot.evidence.tests.judging_rows import ElsewhereRow, FailedRow
    from bot.evidence.tests.parse.block import BlockCase
    from bot.evidence.tests.tables import EnvRow, TestJobRow
    from bot.evidence.tests.verdict import AcrossDevices
    from bot.queue.tasks import Task

BLOCKS = 50  # decoded at a time
BASELINE_READ = 4  # commits of a baseline whose blocks are read
Family = tuple[int, str]  # repository, and the name of jobs without shard and runner
Said = dict[int, dict[int, list["BlockCase"]]]  # generation -> test -> what it said


async def judge_failures(context: Context, task: Task) -> None:
    """Judge the failing tests of a commit."""
    async with context.store.read() as tx:
        failures = await judging_rows.failures_on(tx, task.key)
        if not failures:
            return
        head = await _read(context, tx, task.key, failures)
    judged = await asyncio.to_thread(_changed, head, failures)
    for some in in_batches(judged):
        async with context.store.transaction() as tx:
            await judging_rows.store_verdicts(tx, some)
        await context.clock.sleep(PAUSE)
    async with context.store.transaction() as tx:
        await judging_rows.write_job_cells(tx, task.key)
    if judged:
        async with context.store.transaction() as tx:
            await rows.request_publish_of_commit(tx, task.key)
    turned = [failure for failure, new, _ in judged if Verdict.KNOWN in {failure["verdict"], new}]
    if turned:  # a known failure is no sign of flakiness elsewhere
        since = min(failure["at"] for failure in turned)
        until = max(failure["at"] for failure in turned) + verdict.ELSEWHERE_AGE
        async with context.store.transaction() as tx:
            ids = {failure["test_id"] for failure in turned}
            rows.request_verdicts(
                tx, await judging_rows.heads_failing(tx, ids, since=since, until=until) - {task.key}
            )


@dataclass(kw_only=True)
class JudgedHead:
    """A commit, and everything that its failing tests are judged by."""

    jobs: Mapping[int, TestJobRow]  # by generation
    families: Mapping[int, str]
    envs: Mapping[int, EnvRow]
    said: Said  # on the commit itself
    baselines: dict[Family, FamilyBaseline] = field(default_factory=dict)
    elsewhere: Mapping[int, list[ElsewhereRow]] = field(default_factory=dict)
    flaky: Mapping[tuple[int, str], int] = field(default_factory=dict)
    disabled: Mapping[int, DisabledHere] = field(default_factory=dict)
    across: Mapping[int, AcrossDevices] = field(default_factory=dict)  # by canonical name

    def __post_init__(self) -> None:
        self._by_family: dict[Family, list[int]] = defaultdict(list)
        for generation, job in self.jobs.items():
            self._by_family[job["repository_id"], self.families[generation]].append(generation)

    def judge(self, failure: FailedRow) -> tuple[Verdict, dict[str, object] | None]:
        """Judge a failure; return the verdict and its evidence."""
        job = self.jobs.get(failure["generation"])
        if job is None:  # a run of disabled tests over and over
            return Verdict.NO_BASELINE, None
        family = self.families[failure["generation"]]
        test_id, at = failure["test_id"], failure["at"]
        baseline = self.baselines.get((job["repository_id"], family), _NONE)
        group = self.envs[job["env_id"]]["env_group"]
        since = self.flaky.get((test_id, group))
        disabled = self.disabled.get(job["repository_id"])
        platforms = platforms_of(job, self.envs.get(job["env_id"]))
        judged = verdict.judge(
            Evidence(
                passed_on_head=self._passed(job, family, failure),
                merge_base=baseline.of_base(test_id),
                before=baseline.before(test_id),
                disabled=disabled is not None and disabled.has(failure["suite"], failure["name"], platforms),
                flaky_state=since is not None and since <= at,
                elsewhere=self._elsewhere(job, test_id),
                ever_trusted=_was_trusted(failure, job),
            ),
            failed_at=at,
        )
        evidence: dict[str, object] = {"commits": list(judged.commits)} if judged.commits else {}
        if (across := self.across.get(failure["canonical"], NOWHERE)) != NOWHERE:
            evidence["across"] = msgspec.to_builtins(across)
        return judged.verdict, evidence or None

    def _passed(self, job: TestJobRow, family: str, failure: FailedRow) -> bool:
        """Whether the test also passed on this commit, in the same family of jobs."""
        if failure["flaky"]:
            return True
        same = self._by_family[job["repository_id"], family]
        cases = (case for other in same for case in self.said.get(other, {}).get(failure["test_id"], ()))
        return any(case.code in PASSING for case in cases)

    def _elsewhere(self, job: TestJobRow, test_id: int) -> list[OtherFailure]:
        """Return the test's failures in this family elsewhere: at most one per pull request, none of this one."""
        by_change = {
            failure["pr_number"] or failure["head_sha"]: OtherFailure(failure["head_sha"], failure["at"])
            for failure in sorted(
                self.elsewhere.get(test_id, ()), key=lambda failure: (failure["at"], failure["head_sha"])
            )
            if failure["repository_id"] == job["repository_id"] and failure["family"] == job["family"]
        }
        by_change.pop(job["pr_number"] or "", None)
        return list(by_change.values())


class FamilyBaseline:
    """How a family's tests did on trusted commits."""

    def __init__(self, bases: Collection[str], jobs: Sequence[TestJobRow], said: Said) -> None:
        self._bases = bases
        self._said = said
        self._commits: dict[str, list[TestJobRow]] = defaultdict(list)
        for job in jobs:
            self._commits[rows.tested_commit(job)].append(job)

    def of_base(self, test_id: int) -> TrustedRun | None:
        """Return the run on the merge base; None if the family did not run there."""
        runs = [self._run(sha, test_id) for sha in self._commits if sha in self._bases]
        return max(runs, key=lambda run: (run.at, run.sha), default=None)

    def before(self, test_id: int) -> list[TrustedRun]:
        """Return the runs on other trusted commits."""
        return [self._run(sha, test_id) for sha in self._commits if sha not in self._bases]

    def _run(self, sha: str, test_id: int) -> TrustedRun:
        jobs = self._commits[sha]
        codes = {case.code for job in jobs for case in self._said.get(job["generation"], {}).get(test_id, ())}
        outcome = Baseline.NOT_RUN
        if codes & FAILING:  # also where it passed when it was tried again: it can fail without the change
            outcome = Baseline.FAILED
        elif codes & PASSING:
            outcome = Baseline.PASSED
        return TrustedRun(sha, max(job["at"] for job in jobs), outcome)


_NONE = FamilyBaseline((), (), {})


def _changed(head: JudgedHead, failures: Sequence[FailedRow]) -> list[tuple[FailedRow, str, object]]:
    """Return the failures whose verdict or evidence has changed, with the new ones."""
    judged = ((failure, *head.judge(failure)) for failure in failures)
    return [
        (failure, new.value, evidence)
        for failure, new, evidence in judged
        if (failure["verdict"], failure["evidence"]) != (new.value, evidence)
    ]


async def _read(context: Context, tx: Transaction, sha: str, failures: Sequence[FailedRow]) -> JudgedHead:
    generations = {failure["generation"] for failure in failures}
    failing_jobs = await _by_generation(tx, generations)
    jobs = await judging_rows.jobs_testing(tx, sha, {job["repository_id"] for job in failing_jobs})
    families = await judging_rows.families(tx, jobs)
    wanted: dict[Family, set[int]] = defaultdict(set)  # tests that failed
    by_generation = {job["generation"]: job for job in jobs}
    for failure in failures:
        if job := by_generation.get(failure["generation"]):
            wanted[job["repository_id"], families[job["generation"]]].add(failure["test_id"])
    concerned = [job for job in jobs if (job["repository_id"], families[job["generation"]]) in wanted]
    ids = {failure["test_id"] for failure in failures}
    head = JudgedHead(
        jobs=by_generation,
        families=families,
        envs=await rows.environments_by_id(tx, {job["env_id"] for job in jobs}),
        said=await _said(tx, concerned, ids),
    )
    newest = max(failure["at"] for failure in failures)
    for family, tests in wanted.items():
        example = next(job for job in concerned if _family(job, families) == family)
        head.baselines[family] = await _baseline(tx, context.settings, example, family[1], tests)
    since = min(failure["at"] for failure in failures) - verdict.ELSEWHERE_AGE
    elsewhere = await judging_rows.failures_elsewhere(tx, ids, since=since, until=newest, but=sha)
    by_test: dict[int, list[ElsewhereRow]] = defaultdict(list)
    for row in elsewhere:
        by_test[row["test_id"]].append(row)
    head.elsewhere = by_test
    head.flaky = await judging_rows.flaky_states(tx, ids)
    head.disabled = await _disabled(tx, jobs)
    head.across = await _across(tx, jobs, head.envs, {failure["canonical"] for failure in failures})
    return head


def _family(job: TestJobRow, families: Mapping[int, str]) -> Family:
    return job["repository_id"], families[job["generation"]]


async def _by_generation(tx: Transaction, generations: Collection[int]) -> list[TestJobRow]:
    jobs: list[TestJobRow] = []
    for some in in_batches(sorted(generations)):
        jobs += await rows.jobs_by_generation(tx, some)
    return jobs


async def _said(tx: Transaction, jobs: Sequence[TestJobRow], test_ids: Collection[int]) -> Said:
    """Return the cases of some tests, by job."""
    said: Said = {}
    for some in in_batches([job["generation"] for job in jobs], BLOCKS):
        blocks = await rows.blocks_of_jobs(tx, some)
        said |= await asyncio.to_thread(_find, blocks, test_ids)
    return said


def _find(blocks: Mapping[int, bytes], test_ids: Collection[int]) -> Said:
    said: Said = {}
    for generation, content in blocks.items():
        decoded = block.decode(content)
        said[generation] = {test_id: cases for test_id in test_ids if (cases := decoded.find(test_id))}
    return said


async def _baseline(
    tx: Transaction, settings: Settings, job: TestJobRow, family: str, test_ids: Collection[int]
) -> FamilyBaseline:
    """Read how a family's tests did on the merge base and on the newest trusted commits before it."""
    repo, sha = job["upstream_repo"], tested_commit(job)
    bases: frozenset[str] = frozenset()
    if repo and not job["trusted"]:
        owners = await repositories.read_ids(tx, repo)
        bases = (await find_merge_target(tx, settings, repo, owners, sha)).commits
    owner, presumed, at = job["repository_id"], job["family"], job["at"]
    jobs = await judging_rows.trusted_jobs_on(tx, owner, presumed, bases - {sha}) if bases else []
    before = await judging_rows.baseline_jobs(
        tx, owner, presumed, since=at - verdict.BASELINE_AGE, until=at, but=sha
    )
    families = await judging_rows.families(tx, [*jobs, *before])
    kept = [job for job in (*jobs, *before) if families[job["generation"]] == family]
    newest = list(dict.fromkeys(tested_commit(job) for job in kept))[:BASELINE_READ]
    chosen = {job["generation"]: job for job in kept if tested_commit(job) in newest}
    return FamilyBaseline(bases, list(chosen.values()), await _said(tx, list(chosen.values()), test_ids))


async def _disabled(tx: Transaction, jobs: Sequence[TestJobRow]) -> dict[int, DisabledHere]:
    listed = await allowlists.read_in_force(tx)
    disabled: dict[int, DisabledHere] = {}
    for job in jobs:
        owner = job["repository_id"]
        if owner not in disabled:
            entry = listed.find(job["backend"]) if listed and job["backend"] else None
            upstream = (
                min(await repositories.read_ids(tx, job["upstream_repo"]), default=0)
                if job["upstream_repo"]
                else 0
            )
            disabled[owner] = await disabled_rows.disabled_in_repository(
                tx, owner, upstream, entry.device if entry else None
            )
    return disabled


async def _across(
    tx: Transaction, jobs: Sequence[TestJobRow], envs: Mapping[int, EnvRow], names: Collection[int]
) -> dict[int, AcrossDevices]:
    """Compare the tests with these canonical names across upstream and backends."""
    if not any(job["backend"] for job in jobs):
        return {}
    same = await judging_rows.same_tests(tx, names, {job["repository_id"] for job in jobs})
    said = await _said(tx, jobs, same.keys())
    upstream: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    backends: dict[int, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    upstream_id = 0
    for job in rows.newest_attempts(jobs):
        for test_id, cases in said.get(job["generation"], {}).items():
            passed = [case.code in PASSING for case in cases if case.code in PASSING | FAILING]
            if job["backend"]:
                backends[same[test_id]][job["repository_id"]] += passed
            else:
                upstream_id = job["repository_id"]
                upstream[same[test_id]][envs[job["env_id"]]["accelerator"]] += passed
    return {name: verdict.compare_devices(upstream_id, upstream[name], backends[name]) for name in names}


def _was_trusted(failure: FailedRow, job: TestJobRow) -> bool:
    """Whether an earlier trusted run had the test; a trusted job does not count itself."""
    if failure["outcome"] == Code.CRASHED:  # files that gave no report are no new tests
        return True
    first = failure["trusted_first_at"]
    return first is not None and first < failure["at"] + (not job["trusted"])
