"""Fragments shaped after real logs: the line a person wants, and its kind."""

from __future__ import annotations

import pytest

AT = "2026-09-21T10:00:00.1234567Z "
FAILED = "FAILED tests/test_greeting.py::test_hello - AssertionError: assert 2 == 3"
EXIT = "##[error]Process completed with exit code 1."
# what is around the line -> the line, counted from 1, and its kind
BELOW_TESTS = {
    "make": [FAILED, "make: *** [Makefile:12: test] Error 1"],
    "Gradle task": ["BasketTest > refusesToPay() FAILED", "> Task :shop:test FAILED"],
    "Gradle banner": ["BasketTest > refusesToPay() FAILED", "FAILURE: Build failed with an exception."],
    "npm lifecycle": [FAILED, "npm ERR! code ELIFECYCLE", "npm ERR! errno 1"],
    "Maven goal": [
        "[ERROR]   BasketTest.refusesToPay:33 expected:<2> but was:<3>",
        "[ERROR] Failed to execute goal org.example:plugin:3.2.5:test (default) on project shop: failures.",
    ],
    "linter that only reports": [FAILED, "./app/views.py:17:1: C901 'show' is too complex (22)"],
    "warning": [
        FAILED,
        "##[warning]Could not look for a newer version: API rate limit exceeded for 10.1.2.3",
    ],
    "clean-up of a container": [FAILED, "Error response from daemon: No such container: db-under-test"],
    "missing cache of an image": [
        FAILED,
        "#6 ERROR: importing cache manifest from registry.example.org/app:cache: manifest unknown",
    ],
    "reason of a test that was skipped": [
        FAILED,
        "SKIPPED [1] tests/test_ops.py:3: No CUDA GPUs are available",
    ],
    "memory in words": [FAILED, "INFO retrying after CUDA out of memory"],
    "detail of another tool": [FAILED, "    basket_test.go:12: expected 2"],
    "what could not be started": [FAILED, "  Failed to start the tracer"],
    "upload of metrics": [FAILED, "upload of metrics skipped: Unable to locate credentials"],
    "output of a test that passed": [
        FAILED,
        "tests/test_disk.py::test_message PASSED  # No space left on device",
    ],
    "checkout tried again": [
        FAILED,
        "##[error]fatal: unable to access 'https://git.example.org/o/r/': The requested URL returned error: 500",
    ],
}
PREFIXES = {
    "vLLM": "(EngineCore_DP0 pid=411) ERROR 05-01 10:00:00 [core.py:90] ",
    "Ray": "(train_fn pid=411, ip=10.0.0.1) ",
    "torchrun": "[rank0]: ",
    "Ant": "    [junit] ",
    "BuildKit": "#19 22.31 ",
    "docker compose": "test_1  | ",
    "Turborepo": "app:test: ",
    "task in brackets": "[backend:build:ci] ",
    "pnpm": "packages/app test: ",
    "time": "10:00:00.495 ",
    "date and time": "2026-09-21 10:00:00,495 ",
    "two times": "Sep 21 10:00:00 10:00:00.495 ",
    "gh run view": "test\tRun pytest\t2026-09-21T10:00:00.1234567Z ",
    "colours": "\x1b[0;36m(EngineCore_DP0 pid=411)\x1b[0;0m ",
}
KINDS = {
    "RuntimeError: call aclnnAdd failed, error code is 561103": "test",
    "EZ1001: [PID: 465] Tensor scale not implemented for DT_FLOAT16": "test",
    "EL0004: [PID: 465] Failed to allocate memory.": "infra",
    "FAILED tests/test_ops.py::test_add - RuntimeError: No CUDA GPUs are available": "infra",
    "RuntimeError: no ROCM devices found": "infra",
    "java.lang.OutOfMemoryError: Java heap space": "oom",
    "java.lang.IllegalStateException: the basket is closed": "test",
    "ERROR: failed to build: failed to solve: golang:1.27: unexpected status from HEAD request to "
    "https://registry.example.org/v2/golang/manifests/1.27: 502 Bad Gateway": "infra",
    "ERROR: failed to build: failed to solve: node:lts: no match for platform in manifest": "build",
}
NO_CAUSE = (
    "checking getaddrinfo bug... no",
    "JAVA_OPTS=-Xmx1g -XX:+HeapDumpOnOutOfMemoryError",
    "  AddressSanitizer: false",
)


def log(*lines):
    return "".join(f"{AT}{line}\n" for line in lines)


def verdict(explain, *lines):
    found = explain(log(*lines, EXIT))["verdicts"]
    return (found[0]["line_num"], found[0]["kind"], found[0]["rule"]) if found else None


@pytest.mark.parametrize("lines", BELOW_TESTS.values(), ids=BELOW_TESTS)
def test_a_failed_test_says_more_than_what_wraps_it_or_what_was_only_reported(explain, lines):
    for order in (lines, lines[::-1]):
        assert verdict(explain, *order)[:2] == (order.index(lines[0]) + 1, "test")


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_what_a_process_puts_in_front_of_a_line_is_cut(explain, prefix):
    found = explain(log("collected 12 items", prefix + FAILED, EXIT))["verdicts"][0]
    assert (found["rule"], found["line_num"], found["line"]) == ("pytest failure", 2, FAILED)


@pytest.mark.parametrize("line", KINDS)
def test_a_kind_says_who_has_to_act(explain, line):
    assert verdict(explain, line)[:2] == (1, KINDS[line])


@pytest.mark.parametrize("line", NO_CAUSE)
def test_options_and_checks_are_no_failures(explain, line):
    assert explain(log(line, "ready"))["verdicts"] == []


def test_what_was_tried_again_and_succeeded_is_no_cause(explain):
    tried = "##[error]fatal: unable to access 'https://git.example.org/o/r/': The requested URL returned error: 500"
    assert verdict(explain, tried, "make: nothing")[2] == "Git host unreachable"
    assert (
        verdict(explain, tried, "HEAD is now at 1a2b3c4 Some change", "make: nothing")[2]
        != "Git host unreachable"
    )


def test_a_group_that_a_tool_opens_is_read(explain):
    assert verdict(explain, "##[group]Running the tests", FAILED, "##[endgroup]")[:2] == (2, "test")
    echo = ["##[group]Run echo 'FAILED a.py::b'", f"\x1b[36;1m{FAILED}\x1b[0m", "shell: /usr/bin/bash -e {0}"]
    assert verdict(explain, *echo, "##[endgroup]", "E   assert 2 == 3")[:2] == (5, "test")
    after = ["##[group]Running the tests", FAILED, *echo, "##[endgroup]"]
    assert verdict(explain, *after)[:2] == (2, "test")


@pytest.mark.parametrize(("code", "kind"), [(137, "oom"), (139, "test"), (134, "test"), (143, "cancel")])
def test_the_exit_code_of_a_signal_says_how_a_process_ended(explain, code, kind):
    text = log("linking", f"##[error]Process completed with exit code {code}.")
    found = explain(text)["verdicts"][0]
    assert (found["line_num"], found["kind"]) == (2, kind)
    assert explain(text, "[[rule]]\nname = 'any'\npattern = '##.error.(.*)'\n")["verdicts"] == []


def test_the_last_line_before_the_error_is_the_last_resort(explain):
    found = explain(log("checking", "the table has 3 rows too many", "", EXIT, "Post job cleanup."))[
        "verdicts"
    ]
    assert [(one["rule"], one["kind"], one["line_num"]) for one in found] == [
        ("Last line before the error", "generic", 2)
    ]
    rules = "[[rule]]\nname = 'any'\npattern = 'nowhere'\n"
    assert explain(log("the table has 3 rows too many", EXIT), rules)["verdicts"] == []
    rules = f"last_resort = true\n{rules}"
    assert len(explain(log("the table has 3 rows too many", EXIT), rules)["verdicts"]) == 1
