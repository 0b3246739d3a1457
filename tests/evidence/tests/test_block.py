"""The block of a job's cases."""

from __future__ import annotations

import random

import pytest

from bot.evidence.tests.parse import block, texts
from bot.evidence.tests.parse.block import NO_TIME, Code


def made(count, seed=1):
    chance = random.Random(seed)
    ids = chance.sample(range(1, 4 * count), count)
    return [
        (one, block.code_of(Code.PASSED if chance.random() < 0.99 else Code.FAILED, 1), int(chance.expovariate(0.01)))
        for one in ids
    ]  # fmt: skip


def test_what_was_encoded_comes_back_in_the_order_of_the_tests():
    cases = [
        (7, block.code_of(Code.FAILED, 40, flaky=True), NO_TIME),
        (3, block.code_of(Code.PASSED, 1), 12),
        (7, 20, 5),
    ]
    encoded = block.encode(cases)
    assert encoded == block.encode(cases[::-1])
    assert list(block.cases(encoded)) == sorted(cases)
    decoded = block.decode(encoded)
    assert [tuple(one) for one in decoded.find(7)] == [
        (Code.SKIPPED, 1, False, 5),
        (Code.FAILED, 7, True, None),
    ]
    assert decoded.find(4) == decoded.find(8) == []
    assert list(block.cases(block.encode([]))) == list(block.cases(None)) == []


def test_a_case_takes_three_bytes():
    cases = made(50_000)
    assert len(block.encode(cases)) / len(cases) < 3


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 20, -1])
def test_a_damaged_block_is_named(cut):
    with pytest.raises(block.Damaged):
        block.decode(block.encode(made(100))[:cut])


@pytest.mark.parametrize("change", [b"\x02", b"\x01\xff\xff\xff\x7f"])
def test_another_format_or_a_bomb_is_refused(change):
    encoded = block.encode(made(100))
    with pytest.raises(block.Damaged):
        block.decode(change + encoded[len(change) :])


@pytest.mark.parametrize(
    ("suite", "name", "other_suite", "other_name"),
    [
        ("TestOpsCUDA", "test_add_cuda_float32", "TestOpsNPU", "test_add_npu_float32"),
        ("TestOpsCPU", "test_add_cpu", "TestOpsPRIVATEUSE1", "test_add_privateuse1"),
        ("test_ops", "test_add[cuda-3]", "test_ops", "test_add[mps-3]"),
        ("NPUTest", "testCudaGraph", "XPUTest", "testNpuGraph"),
    ],
)
def test_a_test_has_one_canonical_name_on_all_devices(suite, name, other_suite, other_name):
    assert texts.canonical("a.py", suite, name) == texts.canonical("a.py", other_suite, other_name)


@pytest.mark.parametrize("name", ["test_cpuset", "test_meta2data", "test_scuda", "test_xpux"])
def test_a_device_within_a_word_is_none(name):
    assert texts.without_device(name, texts.DEVICES) == name
