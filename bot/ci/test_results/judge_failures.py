"""test_verdicts: judges the failing tests of a commit again, upstream's and those of backends. Key: the commit's SHA.

It runs whenever something becomes known that its verdicts rest on, so that these do not depend on what came first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from bot.ci.collect.store.merge_base import merged_into
from bot.ci.test_results import across_devices, disabled_here, verdict
from bot.ci.test_results.judged_head import FamilyBaseline, Head
from bot.ci.test_results.parse import block
from bot.ci.test_results.parse.block import FAILING, PASSING
from bot.ci.test_results.store import job_cells, judging_rows, pulls_concerned, requests, rows
from bot.ci.test_results.store.known_tests import PAUSE, in_batches
from bot.ci.test_results.store.rows import tested
from bot.ci.test_results.verdict import Verdict
from bot.ingest import watched
from bot.oot.allowlist import rows as allowlists

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.test_results.across_devices import Across
    from bot.ci.test_results.disabled_here import DisabledHere
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.judged_head import Family, Said
    from bot.ci.test_results.store.judging_rows import ElsewhereRow, FailedRow
    from bot.ci.test_results.tables import EnvRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

BLOCKS = 50  # decoded at a time
BASELINE_READ = 4  # commits of a baseline whose blocks are read


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
        await job_cells.write(tx, task.key)
    if judged:
        async with context.store.transaction() as tx:
            await pulls_concerned.request_publish_of_commit(tx, task.key)
    turned = [one for one, new, _ in judged if Verdict.KNOWN in {one["verdict"], new}]
    if turned:  # a known failure is no sign of flakiness elsewhere
        since = min(one["at"] for one in turned)
        until = max(one["at"] for one in turned) + verdict.ELSEWHERE_AGE
        async with context.store.transaction() as tx:
            ids = {one["test_id"] for one in turned}
            requests.request_verdicts(
                tx, await judging_rows.heads_failing(tx, ids, since=since, until=until) - {task.key}
            )


def _changed(head: Head, failures: Sequence[FailedRow]) -> list[tuple[FailedRow, str, object]]:
    """Return the failures whose verdict or evidence is another one now, with these."""
    found = ((one, *head.judge(one)) for one in failures)
    return [
        (one, new.value, evidence)
        for one, new, evidence in found
        if (one["verdict"], one["evidence"]) != (new.value, evidence)
    ]


async def _read(context: Context, tx: Transaction, sha: str, failures: Sequence[FailedRow]) -> Head:
    generations = {one["generation"] for one in failures}
    failing_jobs = await _by_generation(tx, generations)
    jobs = await judging_rows.jobs_testing(tx, sha, {job["repository_id"] for job in failing_jobs})
    families = await judging_rows.families(tx, jobs)
    wanted: dict[Family, set[int]] = defaultdict(set)  # tests that failed
    by_generation = {job["generation"]: job for job in jobs}
    for one in failures:
        if job := by_generation.get(one["generation"]):
            wanted[job["repository_id"], families[job["generation"]]].add(one["test_id"])
    concerned = [job for job in jobs if (job["repository_id"], families[job["generation"]]) in wanted]
    ids = {one["test_id"] for one in failures}
    head = Head(
        jobs=by_generation,
        families=families,
        envs=await rows.environments_by_id(tx, {job["env_id"] for job in jobs}),
        said=await _said(tx, concerned, ids),
    )
    newest = max(one["at"] for one in failures)
    for family, tests in wanted.items():
        example = next(job for job in concerned if _family(job, families) == family)
        head.baselines[family] = await _baseline(tx, context.settings, example, family[1], tests)
    since = min(one["at"] for one in failures) - verdict.ELSEWHERE_AGE
    found = await judging_rows.failures_elsewhere(tx, ids, since=since, until=newest, but=sha)
    by_test: dict[int, list[ElsewhereRow]] = defaultdict(list)
    for row in found:
        by_test[row["test_id"]].append(row)
    head.elsewhere = by_test
    head.flaky = await judging_rows.flaky_states(tx, ids)
    head.disabled = await _disabled(tx, jobs)
    head.across = await _across(tx, jobs, head.envs, {one["canonical"] for one in failures})
    return head


def _family(job: TestJobRow, families: Mapping[int, str]) -> Family:
    return job["repository_id"], families[job["generation"]]


async def _by_generation(tx: Transaction, generations: Collection[int]) -> list[TestJobRow]:
    found: list[TestJobRow] = []
    for some in in_batches(sorted(generations)):
        found += await rows.jobs_by_generation(tx, some)
    return found


async def _said(tx: Transaction, jobs: Sequence[TestJobRow], test_ids: Collection[int]) -> Said:
    """Return what jobs said of some tests."""
    found: Said = {}
    for some in in_batches([job["generation"] for job in jobs], BLOCKS):
        blocks = await rows.blocks_of_jobs(tx, some)
        found |= await asyncio.to_thread(_find, blocks, test_ids)
    return found


def _find(blocks: Mapping[int, bytes], test_ids: Collection[int]) -> Said:
    found: Said = {}
    for generation, content in blocks.items():
        decoded = block.decode(content)
        found[generation] = {one: cases for one in test_ids if (cases := decoded.find(one))}
    return found


async def _baseline(
    tx: Transaction, settings: Settings, job: TestJobRow, family: str, test_ids: Collection[int]
) -> FamilyBaseline:
    """Return what the merge base, and the newest trusted commits before, said of tests of a family."""
    repo, sha = job["upstream_repo"], tested(job)
    bases: frozenset[str] = frozenset()
    if repo and not job["trusted"]:
        owners = await watched.ids(tx, repo)
        bases = (await merged_into(tx, settings, repo, owners, sha)).commits
    owner, presumed, at = job["repository_id"], job["family"], job["at"]
    jobs = await judging_rows.trusted_jobs_on(tx, owner, presumed, bases - {sha}) if bases else []
    before = await judging_rows.baseline_jobs(
        tx, owner, presumed, since=at - verdict.BASELINE_AGE, until=at, but=sha
    )
    families = await judging_rows.families(tx, [*jobs, *before])
    kept = [one for one in (*jobs, *before) if families[one["generation"]] == family]
    newest = list(dict.fromkeys(tested(one) for one in kept))[:BASELINE_READ]
    chosen = {one["generation"]: one for one in kept if tested(one) in newest}
    return FamilyBaseline(bases, list(chosen.values()), await _said(tx, list(chosen.values()), test_ids))


async def _disabled(tx: Transaction, jobs: Sequence[TestJobRow]) -> dict[int, DisabledHere]:
    listed = await allowlists.in_force(tx)
    found: dict[int, DisabledHere] = {}
    for job in jobs:
        owner = job["repository_id"]
        if owner not in found:
            entry = listed.find(job["backend"]) if listed and job["backend"] else None
            upstream = (
                min(await watched.ids(tx, job["upstream_repo"]), default=0) if job["upstream_repo"] else 0
            )
            found[owner] = await disabled_here.disabled_in_repository(
                tx, owner, upstream, entry.device if entry else None
            )
    return found


async def _across(
    tx: Transaction, jobs: Sequence[TestJobRow], envs: Mapping[int, EnvRow], names: Collection[int]
) -> dict[int, Across]:
    """Return what became of tests of these canonical names, upstream and on backends."""
    if not any(job["backend"] for job in jobs):
        return {}
    same = await judging_rows.same_tests(tx, names, {job["repository_id"] for job in jobs})
    said = await _said(tx, jobs, same.keys())
    upstream: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    backends: dict[int, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    upstream_id = 0
    for job in rows.newest_attempts(jobs):
        for test_id, cases in said.get(job["generation"], {}).items():
            passed = [one.code in PASSING for one in cases if one.code in PASSING | FAILING]
            if job["backend"]:
                backends[same[test_id]][job["repository_id"]] += passed
            else:
                upstream_id = job["repository_id"]
                upstream[same[test_id]][envs[job["env_id"]]["accelerator"]] += passed
    return {
        name: across_devices.compare_devices(upstream_id, upstream[name], backends[name]) for name in names
    }
