"""How long files take: means over jobs, and what stands for jobs that are not known."""

from __future__ import annotations

import pytest

from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import Code
from bot.job_reports.test_lists import times
from bot.job_reports.test_lists.times import Spent


def spent(job, file, suite, seconds, *, base="linux", config="default"):
    return Spent(job, base, config, file, suite, round(seconds * 1000))


def test_the_shards_of_a_job_are_added_and_jobs_averaged():
    measured = [
        spent("run 1", "f", "A", 10),
        spent("run 1", "f", "A", 20),  # another shard
        spent("run 1", "f", "B", 5),
        spent("run 2", "f", "A", 11),
    ]
    assert times.file_times(measured) == {"linux": {"default": {"f": 23.0}}}  # (35 + 11) / 2
    assert times.class_times(measured) == {"linux": {"default": {"f\0A": 20.5, "f\0B": 5.0}}}


def test_defaults_are_means_over_base_names_and_over_configurations():
    known = {
        "linux": {"default": {"f": 10.0, "g": 4.0}, "slow": {"f": 100.0}},
        "win": {"default": {"f": 30.0}},
    }
    found = times.with_defaults(known)
    assert found["default"] == {"default": {"f": 60.0, "g": 4.0}, "slow": {"f": 100.0}}
    assert {name: found[name] for name in known} == known
    assert times.with_defaults(found) == found
    assert times.with_defaults({}) == {}
    assert times.best_times(found, "linux", "default") == {"f": 10.0, "g": 4.0}
    assert times.best_times(found, "mac", "slow") == {"f": 100.0, "g": 4.0}
    assert times.best_times(found, "mac", "new") == {"f": 60.0, "g": 4.0}
    assert times.best_times({}, "mac", "new") == {}


def test_classes_stand_below_their_files():
    assert times.by_file_and_class({"linux": {"default": {"f\0A": 1.0, "f\0B": 2.0, "g\0": 3.0}}}) == {
        "linux": {"default": {"f": {"A": 1.0, "B": 2.0}, "g": {"": 3.0}}}
    }


def shard_of(*cases):
    return block.decode(block.encode([(one, block.code_of(code, 1), time) for one, code, time in cases]))


def test_slow_tests_are_means_over_the_jobs_in_which_they_passed():
    jobs = {
        "a": shard_of((1, Code.PASSED, 40_000), (1, Code.PASSED, 30_000), (2, Code.PASSED, 59_000)),
        "b": shard_of((1, Code.PASSED, 72_000), (2, Code.PASSED, 61_000), (3, Code.FAILED, 99_000)),
        "c": shard_of((1, Code.FAILED, 900_000), (4, Code.PASSED, block.NO_TIME), (5, Code.PASSED, 999)),
    }
    wanted = set().union(*(times.slow_candidates(shard, 2) for shard in jobs.values()))
    assert wanted == {1, 2, 3}
    sums = times.no_sums()
    for job, shard in jobs.items():
        times.add_times(sums, job, shard, wanted)
    assert times.slow_means(sums) == {1: 71.0}  # test 2 takes sixty seconds, no more


@pytest.mark.parametrize("shards", [1, 4])
def test_many_short_cases_of_a_test_are_slow_together(shards):
    passed = block.code_of(block.Code.PASSED, 1)
    cases = [(1, passed, 500)] * 30 * (5 - shards) + [(2, passed, 500), (3, passed, block.NO_TIME)] * 20
    job = [block.decode(block.encode(cases)) for _ in range(shards)]
    wanted = set().union(*(times.slow_candidates(shard, shards) for shard in job))
    sums = times.no_sums()
    for shard in job:
        times.add_times(sums, "job", shard, wanted)
    expected = {1: 0.5 * 30 * (5 - shards) * shards}
    assert times.slow_means(sums) == {
        test: seconds for test, seconds in expected.items() if seconds > times.SLOW
    }


def test_names_of_tests_as_ci_has_them():
    assert times.test_key("test_x", "TestY") == "test_x (__main__.TestY)"
    assert times.test_key("test_x", "pkg.mod.TestY") == "test_x (pkg.mod.TestY)"
