"""Suites in shards: pure arithmetic."""

from __future__ import annotations

import random

import pytest

from bot.pages.tests.test_lists import divide_tests

SECONDS = {"a": 8.0, "b": 7.0, "c": 6.0, "d": 5.0, "e": 4.0}


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
