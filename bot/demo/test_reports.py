"""Reports of the demo's tests, as JUnit XML: the same suite on every device, and what fails there."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.demo.backends import FailedTest

SUITE: dict[str, dict[str, tuple[str, ...]]] = {  # file -> class -> tests; {} is the device
    "test/test_matmul.py": {
        "TestMatmul": (
            "test_matmul_bfloat16",
            "test_matmul_float32",
            "test_matmul_empty",
            "test_matmul_batched",
        )
    },
    "test/test_scatter.py": {
        "TestScatter": (
            "test_scatter_add",
            "test_scatter_add_empty",
            "test_scatter_reduce",
            "test_bool_index",
        )
    },
    "test/test_fft.py": {"TestFourier{}": ("test_fft_half_{}", "test_fft_complex64_{}", "test_fft_norm_{}")},
    "test/test_reductions.py": {"TestReductions": ("test_sum", "test_var", "test_norm_large_input")},
    "test/test_autograd.py": {"TestAutograd": ("test_checkpoint", "test_hooks", "test_double_backward")},
    "test/test_streams.py": {"TestStreams": ("test_wait_event", "test_record", "test_priority")},
}
FLAKY = "test_wait_event"
SKIPPED = frozenset({"test_bool_index", "test_priority"})
SLOW = {"test_double_backward": 74.2, "test_matmul_batched": 12.5}  # seconds


def junit(device: str, failed: Iterable[FailedTest] = (), *, flaky: Collection[str] = ()) -> dict[str, bytes]:
    """Return the report of a job in which these tests fail, and those of these names pass when tried again."""
    failures = {test["name"]: test for test in failed}
    cases = [
        _case(file, suite.format(device.upper()), name.format(device), failures, flaky)
        for file, suites in SUITE.items()
        for suite, names in suites.items()
        for name in names
    ]
    return {"junit.xml": f"<testsuite name='pytest'>{''.join(cases)}</testsuite>".encode()}


def _case(file: str, suite: str, name: str, failures: dict[str, FailedTest], flaky: Collection[str]) -> str:
    child = ""
    if test := failures.get(name):
        trace = escape(test.get("stacktrace", ""))
        child = f"<failure message={quoteattr(test.get('message', ''))}>{trace}</failure>"
    elif name in flaky:
        child = "<rerun message='RuntimeError: the event was not recorded within 5 s'/>"
    elif name in SKIPPED:
        child = "<skipped message='needs two devices'/>"
    seconds = SLOW.get(name, len(name) / 100)
    where = f"file={quoteattr(file)} classname={quoteattr(suite)} name={quoteattr(name)}"
    return f"<testcase {where} time='{seconds}'>{child}</testcase>"
