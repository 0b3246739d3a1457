"""A commit with all that its failing tests are judged by, as it was read. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from bot.ci.test_results import verdict
from bot.ci.test_results.across_devices import NOWHERE
from bot.ci.test_results.disabled_here import platforms_of
from bot.ci.test_results.parse.block import FAILING, PASSING, Code
from bot.ci.test_results.store import rows
from bot.ci.test_results.verdict import Baseline, Evidence, OtherFailure, TrustedRun, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.test_results.across_devices import Across
    from bot.ci.test_results.disabled_here import DisabledHere
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.parse.block import BlockCase
    from bot.ci.test_results.store.judging_rows import ElsewhereRow, FailedRow
    from bot.ci.test_results.tables import EnvRow

Family = tuple[int, str]  # repository, and the name of jobs without shard and runner
Said = dict[int, dict[int, list["BlockCase"]]]  # generation -> test -> what it said


@dataclass(kw_only=True)
class Head:
    """A commit, and all that its failing tests are judged by."""

    jobs: Mapping[int, TestJobRow]  # by generation
    families: Mapping[int, str]
    envs: Mapping[int, EnvRow]
    said: Said  # on the commit itself
    baselines: dict[Family, FamilyBaseline] = field(default_factory=dict)
    elsewhere: Mapping[int, list[ElsewhereRow]] = field(default_factory=dict)
    flaky: Mapping[tuple[int, str], int] = field(default_factory=dict)
    disabled: Mapping[int, DisabledHere] = field(default_factory=dict)
    across: Mapping[int, Across] = field(default_factory=dict)  # by canonical name

    def __post_init__(self) -> None:
        self._by_family: dict[Family, list[int]] = defaultdict(list)
        for generation, job in self.jobs.items():
            self._by_family[job["repository_id"], self.families[generation]].append(generation)

    def judge(self, failure: FailedRow) -> tuple[Verdict, dict[str, object] | None]:
        """Return the verdict on a failure, and what proves it."""
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
        if (found := self.across.get(failure["canonical"], NOWHERE)) != NOWHERE:
            evidence["across"] = msgspec.to_builtins(found)
        return judged.verdict, evidence or None

    def _passed(self, job: TestJobRow, family: str, failure: FailedRow) -> bool:
        """Whether the test also passed on this commit, in the same family of jobs."""
        if failure["flaky"]:
            return True
        same = self._by_family[job["repository_id"], family]
        found = (one for other in same for one in self.said.get(other, {}).get(failure["test_id"], ()))
        return any(one.code in PASSING for one in found)

    def _elsewhere(self, job: TestJobRow, test_id: int) -> list[OtherFailure]:
        """Return failures of the test in these jobs, at most one of each pull request, and none of this one's."""
        found = {
            one["pr_number"] or one["head_sha"]: OtherFailure(one["head_sha"], one["at"])
            for one in sorted(self.elsewhere.get(test_id, ()), key=lambda one: (one["at"], one["head_sha"]))
            if one["repository_id"] == job["repository_id"] and one["family"] == job["family"]
        }
        found.pop(job["pr_number"] or "", None)
        return list(found.values())


def _was_trusted(failure: FailedRow, job: TestJobRow) -> bool:
    """Whether a trusted run had the test before; for one of these, that is another one."""
    if failure["outcome"] == Code.CRASHED:  # files that gave no report are no new tests
        return True
    first = failure["trusted_first_at"]
    return first is not None and first < failure["at"] + (not job["trusted"])


class FamilyBaseline:
    """What trusted commits said of a family's tests."""

    def __init__(self, bases: Collection[str], jobs: Sequence[TestJobRow], said: Said) -> None:
        self._bases = bases
        self._said = said
        self._commits: dict[str, list[TestJobRow]] = defaultdict(list)
        for job in jobs:
            self._commits[rows.tested(job)].append(job)

    def of_base(self, test_id: int) -> TrustedRun | None:
        """Return the run on the merge base, None where the family did not run there."""
        runs = [self._run(sha, test_id) for sha in self._commits if sha in self._bases]
        return max(runs, key=lambda one: (one.at, one.sha), default=None)

    def before(self, test_id: int) -> list[TrustedRun]:
        """Return the runs on other trusted commits."""
        return [self._run(sha, test_id) for sha in self._commits if sha not in self._bases]

    def _run(self, sha: str, test_id: int) -> TrustedRun:
        jobs = self._commits[sha]
        found = {one.code for job in jobs for one in self._said.get(job["generation"], {}).get(test_id, ())}
        outcome = Baseline.NOT_RUN
        if found & FAILING:  # also where it passed when it was tried again: it can fail without the change
            outcome = Baseline.FAILED
        elif found & PASSING:
            outcome = Baseline.PASSED
        return TrustedRun(sha, max(job["at"] for job in jobs), outcome)


_NONE = FamilyBaseline((), (), {})
