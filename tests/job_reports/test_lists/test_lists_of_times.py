"""Times of tests and shards, and tests that are run over and over."""

from __future__ import annotations

import random

import pytest

from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import Code
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.test_lists import times
from bot.job_reports.test_lists.reruns import RERUNS_MOST, RerunCase, Reruns, count_reruns
from bot.job_reports.test_lists.times import NameOfTest, Spent
from bot.pages.tests.test_lists import divide_tests
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import L3, UPSTREAM

JOB = "linux-jammy / test (default, {shard}, 2, linux.large)"
HORIZON = 120
SECONDS = {"a": 8.0, "b": 7.0, "c": 6.0, "d": 5.0, "e": 4.0}
X = NameOfTest("test_x", "TestX", "f.py")


def report(*cases, folder="test_ops"):
    """An artifact in PyTorch's layout: what launched the tests is the folder."""
    return {f"test/test-reports/python-pytest/{folder}/a.xml": xml(*cases)}


async def look(bot):
    await bot.settle(horizon=HORIZON)
    await bot.wait(2 * 1800)
    await bot.settle(horizon=HORIZON)


async def listed(bot, name="test-times", query="", repo=UPSTREAM):
    status, body = await bot.get(f"/api/ci/{repo}/{name}.json{query}")
    return body if status == 200 else (status, body["error"])


@pytest.mark.logic
async def test_times_of_trusted_runs_become_lists(bot, github):
    cases = (case("test_a", time="90"), case("test_b", suite="Other", time="2.5"))
    await ran(github, report(*cases), name=JOB.format(shard=1))
    await ran(
        github, report(case("test_c", time="900"), folder="fork"), event="pull_request", head_branch="main"
    )
    await look(bot)
    in_file = {"test_ops": 92.5}
    assert await listed(bot) == {
        "linux-jammy": {"default": in_file},
        "default": {"default": in_file},
    }
    assert (await listed(bot, "test-class-times"))["linux-jammy"]["default"] == {
        "test_ops": {"Other": 2.5, "TestOps": 90.0}
    }
    assert await listed(bot, "slow-tests") == {"test_a (__main__.TestOps)": 90.0}
    assert await listed(bot, "shards", "?n=2&tests=test_ops,new") == {
        "ok": True,
        "shards": [{"tests": ["new"], "seconds": 92.5}, {"tests": ["test_ops"], "seconds": 92.5}],
        "unknown": ["new"],
    }
    status, answer = await bot.request(
        "POST", f"/api/ci/{UPSTREAM}/shards.json?n=1&base=linux-jammy&config=default", json=["test_ops"]
    )
    assert (status, answer["shards"]) == (200, [{"tests": ["test_ops"], "seconds": 92.5}])
    assert await listed(bot, query=f"?backend={L3}") == (404, "unknown_repository")


@pytest.mark.logic
async def test_what_was_not_measured_again_stays_and_old_jobs_go(bot, github):
    await ran(github, report(case("test_a", time="4")), name="old / test (default)")
    await look(bot)
    bot.clock.advance(20 * 86_400)
    await ran(github, report(case("test_a", time="6"), folder="new"), name="linux-jammy / test (default)")
    await look(bot)
    first = await listed(bot)
    assert first["old"]["default"] == {"test_ops": 4.0}
    assert first["default"]["default"] == {"new": 6.0, "test_ops": 4.0}
    shards = await listed(bot, "shards", "?n=1")
    assert shards["shards"] == [{"tests": ["new", "test_ops"], "seconds": 10.0}]
    bot.clock.advance(20 * 86_400)
    for _ in range(3):
        await ran(github, report(case("test_a", time="8")), name="linux-jammy / test (default)")
    await look(bot)
    assert await listed(bot) == {
        "linux-jammy": {"default": {"new": 6.0, "test_ops": 8.0}},
        "default": {"default": {"new": 6.0, "test_ops": 8.0}},
    }
    assert (await listed(bot, "shards", "?n=1"))["shards"] == [
        {"tests": ["test_ops", "new"], "seconds": 14.0}
    ]


@pytest.mark.logic
async def test_commits_whose_jobs_still_run_do_not_count(bot, github):
    sha = await github.push(UPSTREAM)
    run, _ = await ran(github, report(case("test_a", time="4")), head_sha=sha)
    await github.start_job(run, "another")
    await look(bot)
    assert await listed(bot) == (404, "no_list")


@pytest.mark.parametrize(
    ("query", "body"),
    [("", []), ("?n=0", []), ("?n=1001", []), ("?n=1", {}), ("?n=1", [""]), ("?n=1", ["x"] * 20_001)],
)
@pytest.mark.logic
async def test_refused_questions(bot, query, body):
    status, answer = await bot.request("POST", f"/api/ci/{UPSTREAM}/shards.json{query}", json=body)
    assert (status, answer["ok"]) == (400, False)


class TestBranch:
    """With a branch that follows only good commits."""

    @pytest.fixture
    def options(self, options):
        return options | {JobReportSettings: JobReportSettings(ci_times_branch="viable/strict")}

    @pytest.mark.logic
    async def test_its_commits_alone_count(self, bot, github):
        good = await github.push(UPSTREAM)
        await ran(github, report(case("test_a", time="4")), head_sha=good)
        await ran(github, report(case("test_a", time="400")), head_sha=await github.push(UPSTREAM))
        await look(bot)
        assert await listed(bot) == (404, "no_list")
        viable = await github.push(UPSTREAM, "viable/strict")
        await ran(github, report(case("test_a", time="5")), head_sha=viable)
        await look(bot)
        assert (await listed(bot))["default"] == {"default": {"test_ops": 5.0}}


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


def names_in(division):
    return [shard.tests for shard in division.shards]


def test_the_longest_goes_first_to_the_shard_with_least_to_do():
    found = divide_tests(SECONDS, SECONDS, 2)
    assert names_in(found) == [["a", "d", "e"], ["b", "c"]]
    assert [shard.seconds for shard in found.shards] == [17.0, 13.0]


def test_order_and_repetition_do_not_matter():
    names = [*SECONDS, *"xyz", "a", "x"]
    expected = divide_tests(names, SECONDS, 3)
    for seed in range(20):
        shuffled = random.Random(seed).sample(names, len(names))
        assert divide_tests(shuffled, SECONDS, 3) == expected


def test_unknown_tests_count_as_the_mean_of_the_known_ones():
    found = divide_tests(["a", "e", "new"], SECONDS, 2)
    assert found.unknown == ["new"]
    assert sum(shard.seconds for shard in found.shards) == 8 + 4 + 6
    assert names_in(found) == [["a"], ["new", "e"]]
    assert names_in(divide_tests(["x", "y", "z", "w"], {}, 2)) == [["w", "y"], ["x", "z"]]
    assert [one.seconds for one in divide_tests(["x"], SECONDS, 1).shards] == [6.0]


@pytest.mark.parametrize("seconds", [{}, dict.fromkeys(map(str, range(9)), 0.0), {"0": 1000.0}])
@pytest.mark.parametrize("count", range(1, 10))
def test_no_shard_is_empty_while_there_are_enough_tests(seconds, count):
    found = divide_tests(map(str, range(9)), seconds, count)
    assert all(found.shards[at].tests for at in range(count))
    assert sorted(name for shard in found.shards for name in shard.tests) == sorted(map(str, range(9)))


def test_the_largest_question_is_answered():
    names = [f"test_{number}" for number in range(20_000)]
    found = divide_tests(names, {name: float(number % 97) for number, name in enumerate(names)}, 1_000)
    assert {len(shard.tests) for shard in found.shards} != {0}
    assert max(one.seconds for one in found.shards) - min(one.seconds for one in found.shards) < 97


def test_more_shards_than_tests():
    assert names_in(divide_tests(["a"], SECONDS, 3)) == [["a"], [], []]
    assert names_in(divide_tests([], SECONDS, 2)) == [[], []]


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (Code.PASSED, "", (1, 0)),
        (Code.XFAILED, "", (1, 0)),
        (Code.FAILED, "", (0, 1)),
        (Code.ERROR, "", (0, 1)),
        (Code.SKIPPED, '{"num_green": 49, "num_red": 1, "flaky": true}', (49, 1)),
        (Code.SKIPPED, '{"num_green": 99999999999, "num_red": -5}', (RERUNS_MOST, 0)),
        (Code.SKIPPED, "needs a device", None),
        (Code.SKIPPED, '{"num_green": "1", "num_red": 0}', None),
        (Code.SKIPPED, "[1, 2", None),
    ],
)
def test_what_a_case_adds(code, message, expected):
    assert count_reruns([RerunCase(X, code, message)]) == ({} if expected is None else {X: Reruns(*expected)})


def test_repetitions_count_for_their_test():
    again = [RerunCase(X._replace(name=f"test_x[{number}]"), Code.PASSED, "") for number in range(3)]
    found = count_reruns([*again, RerunCase(X._replace(name="test_x[1-3]"), Code.FAILED, "")])
    assert found == {X: Reruns(3, 1)}
    assert [one.flaky for one in (Reruns(3, 1), Reruns(0, 0), Reruns(1, 0))] == [True, True, False]


@pytest.mark.logic
async def test_jobs_that_rerun_disabled_tests_are_counted_once(bot, github):
    note = '{"num_green": 50, "num_red": 2, "rerun_disabled_test": true}'
    skipped = f"<testcase file='f.py' classname='TestX' name='test_x' time='1'><skipped message='{note}'/></testcase>"
    await ran(
        github,
        {"a.xml": xml(skipped)},
        name="linux-jammy / test (default, 1, 2, linux.large, rerun_disabled_tests)",
    )
    await bot.settle(horizon=120)
    for _ in range(2):
        await bot.wait(2 * 1800)
        await bot.settle(horizon=60)
    (row,) = await bot.rows("test_rerun")
    assert {name: row[name] for name in ("name", "suite", "file", "green", "red", "flaky", "trusted")} == {
        "name": "test_x", "suite": "TestX", "file": "f.py", "green": 50, "red": 2, "flaky": True, "trusted": True,
    }  # fmt: skip
    assert "linux" in row["platforms"]
