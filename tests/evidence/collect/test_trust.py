"""Names of jobs, taken apart; the jobs that artifacts belong to; which runs are trusted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bot.evidence.collect.receivers import Attribution, Job, attempt_of, attribute_artifact, reported_job
from bot.jobs.job_names import parse_name, resolve_shards
from bot.jobs.runs import is_trusted

OURS = {"repository_id": 7, "head_repository_id": 7, "event": "push", "head_branch": "main"}
QUEUE = {"event": "merge_group", "head_branch": "gh-readonly-queue/main/pr-12-0123abc"}
BOT = Path(__file__).parents[3] / "bot"
JOBS = [
    Job(41_000_001, "linux-jammy / test (default, 1, 2, linux.4xlarge)", 1),
    Job(41_000_002, "linux-jammy / test (default, 2, 2, linux.4xlarge)", 1),
    Job(41_000_003, "linux-jammy / build", 1),
    Job(42_000_001, "linux-jammy / build", 2),
]


@pytest.mark.parametrize(
    ("run", "patterns", "trusted"),
    [
        ({}, (), True),
        ({"event": "schedule"}, (), True),
        ({"event": "workflow_dispatch"}, (), True),
        ({"event": "pull_request"}, (), False),
        ({"event": "pull_request_target"}, (), False),
        ({"event": "repository_dispatch"}, (), False),
        ({"head_repository_id": 8}, (), False),  # a fork's branch called main
        ({"head_repository_id": None}, (), False),
        ({"head_branch": "feature"}, (), False),
        ({"head_branch": None}, (), False),
        ({"head_branch": "release/2.1"}, ("main", "release/*"), True),
        ({"head_branch": "main"}, ("release/*",), False),
        (QUEUE, (), True),
        (QUEUE | {"head_branch": "gh-readonly-queue/feature/pr-12-0123abc"}, (), False),
        (QUEUE | {"head_branch": "gh-readonly-queue/release/2.1/pr-1-a"}, ("release/*",), True),
        (QUEUE | {"head_branch": "main"}, (), False),
    ],
)
def test_a_run_is_trusted_or_not(run, patterns, trusted):
    assert is_trusted(OURS | run, default_branch="main", patterns=patterns) is trusted


def test_without_a_known_default_branch_nothing_is_trusted():
    assert not is_trusted(OURS, default_branch=None, patterns=())


def test_only_jobs_decide_which_runs_are_trusted():
    deciding = {
        str(path.relative_to(BOT))
        for path in BOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "bot.jobs.runs"
        for name in node.names
        if name.name == "is_trusted"
    }
    assert deciding == set()  # is_trusted says only what GitHub says of a run


@pytest.mark.parametrize(
    ("name", "base", "config", "shard", "runner", "shard_free"),
    [
        ("linux-jammy / test (default, 1, 5, linux.4xlarge)", "linux-jammy", "default", (1, 5), "linux.4xlarge",
         "pull / linux-jammy / test (default)"),
        ("linux-jammy / test-osdc (distributed, 2, 3, linux.g5.12xlarge.nvidia.gpu, unstable)", "linux-jammy", "distributed",
         (2, 3), "linux.g5.12xlarge.nvidia.gpu", "pull / linux-jammy / test-osdc (distributed, unstable)"),
        ("linux-jammy / build", "linux-jammy", "default", None, None, "pull / linux-jammy / build"),
        ("a / b / test (inductor, 2/5)", "a / b", "inductor", (2, 5), None, "pull / a / b / test (inductor)"),
        ("a / test (slow, 2 of 5, ubuntu-24.04)", "a", "slow", (2, 5), "ubuntu-24.04", "pull / a / test (slow)"),
        ("lint", "lint", "default", None, None, "pull / lint"),
        ("lint (3.11)", "lint (3.11)", "default", None, None, "pull / lint (3.11)"),
        ("test (3.11, ubuntu-latest)", "test (3.11, ubuntu-latest)", "3.11", None, None, "pull / test (3.11, ubuntu-latest)"),
        ("wheel (manylinux) / test (default, 5, 3)", "wheel (manylinux)", "default", None, None,
         "pull / wheel (manylinux) / test (default, 5, 3)"),
        ("x / test (default, 1, 600)", "x", "default", None, None, "pull / x / test (default, 1, 600)"),
        ("x / test (default, 0, 5)", "x", "default", None, None, "pull / x / test (default, 0, 5)"),
        ("()", "()", "default", None, None, "pull / ()"),
        ("", "", "default", None, None, "pull / "),
    ],
)  # fmt: skip
def test_a_name_is_taken_apart(name, base, config, shard, runner, shard_free):
    found = parse_name("pull", name)
    assert (found.base_name, found.config) == (base, config)
    assert (found.shard, found.shards) == (shard or (None, None))
    assert (found.runner, found.shard_free) == (runner, shard_free)
    assert found.full == f"pull / {name}"


def test_flags_are_what_is_neither_configuration_nor_shard_nor_runner():
    assert parse_name("pull", "a / test (default, 1, 2, mem_leak_check, linux.large)").flags == (
        "mem_leak_check",
    )
    assert parse_name("pull", "a / build (L4)").flags == ("L4",)


def test_numbers_are_a_shard_only_among_siblings_of_the_same_count():
    shards = [parse_name("pull", f"a / test (default, {number}, 3, linux.large)") for number in (1, 2, 3)]
    assert {one.shard_free for one in resolve_shards(shards)} == {"pull / a / test (default)"}
    lone = [
        parse_name("pull", "a / test (3, 5)"),
        parse_name("pull", "b / test (1, 5)"),
        parse_name("trunk", "a / test (1, 5)"),
    ]
    assert [one.shard_free for one in resolve_shards(lone)] == [
        "pull / a / test (3, 5)",
        "pull / b / test (1, 5)",
        "trunk / a / test (1, 5)",
    ]
    assert [one.shard for one in resolve_shards(lone)] == [None, None, None]
    twice = [
        parse_name("pull", "a / test (default, 1, 3, linux.large)"),
        parse_name("pull", "a / test (default, 1, 3, linux.xl)"),
    ]
    assert [one.shard for one in resolve_shards(twice)] == [
        None,
        None,
    ]  # two runs of one job are no two shards


def test_a_hostile_name_takes_no_time():
    for name in ("(" * 100_000, " / " * 50_000, "a / test (" + "1, " * 50_000 + ")", "1" * 100_000):
        parse_name("w", name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("test-reports-test-default-1-2-linux.4xlarge_41000001.zip", (41_000_001, ())),
        ("test-reports-runattempt1-test-default-2-2-linux.4xlarge_41000002", (41_000_002, ())),
        ("sccache-stats-linux-jammy-runattempt1-41000003", (41_000_003, ())),
        ("torchci-reports-runattempt2-41000003", (41_000_003, ("foreign_attempt",))),
        ("test-reports_99000001.zip", (None, ("foreign_job",))),
        ("logs-linux-jammy-build", (41_000_003, ())),
        ("logs-linux-jammy", (None, ())),  # three jobs fit
        ("test-results", (None, ())),
        ("coverage-70", (None, ())),
        ("wheels-900", (None, ())),
        ("whatever_70000000", (None, ())),  # the run's own id
    ],
)
def test_an_artifact_belongs_to_a_job_of_its_run_or_to_none(name, found):
    assert attribute_artifact(name, JOBS, attempt=1, run_id=70_000_000) == Attribution(*found)


def test_a_job_named_inside_a_file_only_selects_among_the_runs_own():
    assert reported_job("41000003", JOBS) == (41_000_003, ())
    assert reported_job(41_000_003, JOBS) == (41_000_003, ())
    for foreign in ("99000001", "x", -1, "٤١", "9" * 40):
        assert reported_job(foreign, JOBS) == (None, ("foreign_job",)), foreign
    assert reported_job(None, JOBS) == (None, ())


def test_the_attempt_is_the_latest_that_had_begun():
    started = {1: 1_000, 2: 5_000, 3: 9_000}
    assert [attempt_of(at, started) for at in (500, 1_000, 4_999, 5_000, 20_000, None)] == [1, 1, 1, 2, 3, 3]
    assert attempt_of(5, {}) == 1
