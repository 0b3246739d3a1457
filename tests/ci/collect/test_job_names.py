"""Names of jobs: what is taken out of them, and what tells two jobs apart."""

from __future__ import annotations

import pytest

from bot.ci.collect.job_names import parse, sharded

UPSTREAM = "linux-jammy / test (default, 1, 5, linux.4xlarge)"


def test_the_parts_of_a_matrix_job():
    name = parse("pull", UPSTREAM)
    assert (name.base, name.config, name.shard, name.shards) == ("linux-jammy", "default", 1, 5)
    assert name.runner == "linux.4xlarge"
    assert name.family == "pull / linux-jammy / test (default)"
    assert name.full == "pull / linux-jammy / test (default, 1, 5)"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("lint", "w / lint"),
        ("lint (3.11)", "w / lint (3.11)"),
        ("test (ubuntu-24.04, 3.11)", "w / test (ubuntu-24.04, 3.11)"),
        ("test (py3.11, cuda12.1)", "w / test (py3.11, cuda12.1)"),
        ("a / test (default, 2/5, npu.8)", "w / a / test (default)"),
        ("a / test (default, 2 of 5)", "w / a / test (default)"),
        ("a / test (2, 5)", "w / a / test"),
        ("a / test (default, 6, 5)", "w / a / test (default, 6, 5)"),
        ("a / test (default, 1, 513)", "w / a / test (default, 1, 513)"),
        ("a / test (default, 0, 5)", "w / a / test (default, 0, 5)"),
        ("a / test (default, 1, 2, 3, macos-m1-14)", "w / a / test (default, 3)"),
        (
            "a / test (default, 1, 5, lf.linux.2xlarge, unstable)",
            "w / a / test (default, unstable)",
        ),
        ("build (x) (y)", "w / build (x) (y)"),
        ("", "w / "),
        ("test (", "w / test ("),
        ("test ()", "w / test ()"),
    ],
)
def test_only_shard_and_runner_are_taken_out(name, family):
    assert parse("w", name).family == family


@pytest.mark.parametrize(
    ("name", "base", "config"),
    [
        ("linux / test-osdc (slow, 1, 2, linux.2xlarge)", "linux", "slow"),
        ("a / b / test (distributed, 1, 3, linux.8)", "a / b", "distributed"),
        ("linux / perf-test (inductor torchbench, 1, 3, linux.8)", "linux", "inductor torchbench"),
        ("linux / build", "linux", "default"),
        ("lint", "lint", "default"),
    ],
)
def test_build_and_configuration(name, base, config):
    parsed = parse("w", name)
    assert (parsed.base, parsed.config) == (base, config)


def test_flags_are_named_and_stay_in_the_name():
    name = parse("w", "a / test (default, 1, 2, unstable, linux.4xlarge)")
    assert name.flags == ("unstable",)
    assert name.family == "w / a / test (default, unstable)"


def test_a_lone_pair_of_numbers_is_no_shard_until_a_sibling_shows_up():
    third, first, other = (parse("w", f"t ({n})") for n in ("3, 5", "1, 5", "2, 3"))
    assert sharded([third, third]) == {}
    assert sharded([third, other]) == {}
    assert sharded([third, other, first]) == {"w / t": frozenset({5})}


def test_a_hostile_name_costs_no_time():
    for name in ("(" * 5_000, " / " * 3_000, "a (" + "1, " * 5_000 + ")", "test (" + "x" * 60_000):
        assert parse("w", name).workflow == "w"
