"""Participants in the demo: repositories, the allowlist that names them, the jobs their CIs run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.demo.backends import PlannedJob

if TYPE_CHECKING:
    from bot.demo.backends import FailedTest

UPSTREAM = "pytorch/pytorch"
AUTHOR = "octocat"
WATCHER = "org/watcher"
RISCV = "org/riscv-backend"
FPGA = "org/fpga-backend"
NPU = "org/npu-backend"
TPU = "org/tpu-backend"
SOURCES = '["**", "!docs/**", "!**/*.md"]'  # files whose change is worth running
BACKENDS = (WATCHER, RISCV, FPGA, NPU, TPU)

DISABLED_TEST = "test_gelu_backward_float16 (__main__.TestActivations)"

NPU_LABEL = "ciflow/oot/npu"
GATE = "oot / gate"
TPU_ONCALL = "bob"
RISCV_ONCALL = "alice"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The check runs that the scenario looks at, and what differs with the preset the bot runs with."""

    tpu: str  # the names
    npu: str
    others: frozenset[str] = frozenset()
    audience: str = "ootbot"  # of the backends' tokens
    queued: bool = True  # there is a check run before the first report
    counted: bool = True  # their titles count tests
    l3_failure: str = "neutral"
    history: bool = True  # upstream's pushes of a month are told; False where each would be dispatched


EXPECTED = {
    None: Expected(tpu="oot / tpu", npu="oot / npu"),
    "crcr": Expected(
        tpu=f"crcr/{TPU}/CI/test",
        npu=f"crcr/{NPU}/CI/test",
        others=frozenset({f"crcr/{TPU}/CI/build"}),
        audience="pytorch-cross-repo-ci-relay",
        queued=False,
        counted=False,
        l3_failure="failure",
        history=False,
    ),
}

MATMUL: FailedTest = {
    "name": "test_matmul_bfloat16",
    "classname": "TestMatmul",
    "file": "test/test_matmul.py",
    "line": 214,
    "message": "AssertionError: tensors are not close: 3 of 4096 elements differ by up to 0.031",
    "stacktrace": (
        "test/test_matmul.py:214: in test_matmul_bfloat16\n"
        "    assert_close(actual, expected, rtol=0.016)\n"
        "AssertionError: tensors are not close: 3 of 4096 elements differ by up to 0.031"
    ),
}
SCATTER: FailedTest = {
    "name": "test_scatter_add_empty",
    "classname": "TestScatter",
    "file": "test/test_scatter.py",
    "line": 87,
    "message": "RuntimeError: index out of range: dimension 0 has size 0",
}

FFT: FailedTest = {
    "name": "test_fft_half_npu",
    "classname": "TestFourierNPU",
    "file": "test/test_fft.py",
    "line": 52,
    "message": "RuntimeError: half precision is not supported for lengths that are no power of two",
}

OWN_JOB = "linux-jammy-cuda12.8-py3.10 / test (default, 1, 2, linux.g5.4xlarge)"  # of upstream's own CI
MEASURED_LABEL = "linux.npu.2"
MEASURED_JOB = f"linux-npu / test (default, {MEASURED_LABEL})"
TPU_TESTS, TPU_SKIPPED = 8_452, 20  # in its suite; the skipped ones are among them

RISCV_JOBS = (PlannedJob(name="test", seconds=0.5, counts={"passed": 512, "failed": 0, "skipped": 4}),)
NPU_PASSES = (PlannedJob(name="test", seconds=1.0, counts={"passed": 3_140, "failed": 0, "skipped": 11}),)
NPU_FAILS = (
    PlannedJob(
        name="test",
        seconds=1.0,
        conclusion="failure",
        counts={"passed": 3_138, "failed": 2, "skipped": 11},
        failed_tests=(SCATTER, FFT),
    ),
)


def tpu_jobs(*failed: FailedTest) -> tuple[PlannedJob, ...]:
    """Return the jobs of the blocking backend, with these tests failing."""
    passed = TPU_TESTS - TPU_SKIPPED - len(failed)
    return (
        PlannedJob(name="build", seconds=0.5),
        PlannedJob(
            name="test",
            seconds=1.5,
            conclusion="failure" if failed else "success",
            counts={"passed": passed, "failed": len(failed), "skipped": TPU_SKIPPED},
            failed_tests=failed,
        ),
    )


def allowlist(start_timeout: str) -> str:
    """Return the allowlist; a backend that starts nothing within `start_timeout` counts as never started."""
    return f"""\
L1: [{WATCHER}]                       # receives every event, reports nothing
L2:
  - {RISCV}: {{oncalls: {RISCV_ONCALL}, paths: {SOURCES}}}   # results on the HUD
  - repo: {FPGA}                # listed, but never starts a run
    oncalls: [alice]
    start_timeout: {start_timeout}
    paths: {SOURCES}
L3:
  npu:                                 # a check run where the label {NPU_LABEL} is set
    {NPU}: {{oncalls: [alice], paths: {SOURCES}}}
L4:
  tpu:                                 # a blocking check run, but where only documentation changed
    {TPU}: {{oncalls: [{TPU_ONCALL}], paths: {SOURCES}, paths_pass: true}}
"""
