"""A plugin for pytest that writes run reports: every attempt of every test, and the device it ran on.

JUnit XML loses attempts: what was re-run and passed looks like a pass. Keep this file where Python finds it, then:

    OOTBOT_ACCELERATOR=npu pytest -p pytest_reports --ootbot-report-prefix=results/npu

writes results/npu-<uuid>.report.jsonl, JSON lines of schema 0.1: one of type `report`, then one of type `run` for each
attempt, each written when it ends, so that a crash loses no earlier one. With pytest-xdist the main process writes,
and a test at which a worker crashed is failed. Works with pytest-rerunfailures. Needs Python 3.8 and pytest 7.

Environment: OOTBOT_ACCELERATOR (cpu, cuda, npu, …), OOTBOT_ACCELERATOR_VERSION, OOTBOT_DEVICE_NAME and
OOTBOT_DEVICE_COUNT; OOTBOT_JOB_ID, GitHub's id of the job (`job.check_run_id`); OOTBOT_REPORT_FLAGS, names of further
variables to write down; OOTBOT_REPORT_PREFIX, used without the option.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SCHEMA = "0.1"
ROOT = "test/"  # of files, left out
MOST = 1024  # characters of a message
MOST_STACK = 4096  # characters of a stack trace, of its end


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("reporting").addoption(
        "--ootbot-report-prefix",
        metavar="PATH",
        default=os.environ.get("OOTBOT_REPORT_PREFIX"),
        help="write every attempt of every test to PATH-<uuid>.report.jsonl",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin the report, unless this process is a worker of pytest-xdist: its reports reach the main process."""
    prefix = config.getoption("--ootbot-report-prefix")
    if not prefix or hasattr(config, "workerinput"):
        return
    try:
        config.pluginmanager.register(Writer.begin(prefix), "ootbot-report-writer")
    except OSError as error:
        raise pytest.UsageError(f"cannot write the report {prefix}-…: {error}") from error


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Note how the test is called in the source: generated tests differ by device; workers send it along."""
    outcome = yield
    declared = getattr(getattr(item, "function", None), "__name__", "")
    outcome.get_result().ootbot_declared_name = str(declared)


@dataclass
class Case:
    """A test under way."""

    began: float  # seconds since 1970
    took: float = 0.0
    outcome: str = "passed"
    summary: str = ""
    stack: str = ""
    declared: str = ""  # its name in the source
    begun: bool = False  # its setup was reported
    over: bool = False  # what is reported next begins another attempt


@dataclass(eq=False)  # pytest keeps plugins in sets
class Writer:
    """Writes one report."""

    path: Path
    file: Any
    under_way: dict[str, Case] = field(default_factory=dict)  # by node id
    attempts: dict[str, int] = field(default_factory=dict)  # that have ended

    @classmethod
    def begin(cls, prefix: str) -> Writer:
        """Create the file with its first line."""
        identity = str(uuid.uuid4())
        path = Path(f"{prefix}-{identity}.report.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = cls(path, path.open("xb", buffering=0))
        writer.write("report", report_uuid=identity, **_head())
        return writer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what setup, call or teardown of a test came to; write the attempt when it is over.

        An attempt that is followed by another one may have no teardown: then what is reported next ends it. Under
        pytest-rerunfailures that may be a subtest, as it holds back all reports but those until the attempt is over.
        """
        is_subtest = hasattr(report, "context")
        last = self.under_way.get(report.nodeid)
        if last and (last.over if is_subtest else report.when == "setup" and last.begun):
            self.end(report.nodeid)
        case = self.under_way.setdefault(report.nodeid, Case(time.time() - report.duration))
        if not is_subtest:  # its time is part of the test's
            case.begun = True
            case.over = report.when == "call" or str(report.outcome) == "rerun"
            case.took += report.duration
        case.declared = getattr(report, "ootbot_declared_name", "") or case.declared
        outcome = _outcome(report)
        if outcome in ("failed", "error") or (outcome != "passed" and not is_subtest):
            if case.outcome not in ("failed", "error"):
                case.summary, case.stack = _words(report)
            if case.outcome != "failed":
                case.outcome = outcome
        if report.when not in ("setup", "call"):  # of a worker's crash, pytest-xdist says "???"
            self.end(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that cannot be imported, or skips itself, as one case; pytest-xdist may say it often."""
        if report.outcome != "passed" and report.nodeid not in self.attempts:
            summary, stack = _words(report)
            outcome = "skipped" if report.outcome == "skipped" else "error"
            self.under_way[report.nodeid] = Case(time.time(), 0.0, outcome, summary, stack)
            self.end(report.nodeid)

    def pytest_unconfigure(self) -> None:
        """End the report; of tests that did not end, those are written that have failed."""
        for nodeid in [nodeid for nodeid, case in self.under_way.items() if case.outcome != "passed"]:
            self.end(nodeid)
        self.file.close()

    def end(self, nodeid: str) -> None:
        """Write an attempt."""
        case, number = self.under_way.pop(nodeid), self.attempts.get(nodeid, 0)
        self.attempts[nodeid] = number + 1
        began = round(case.began * 1000)
        file, suite, name = _identity(nodeid)
        self.write(
            "run",
            file=file,
            suite=suite,
            case_name=name,
            language="python",
            declared_case_name=case.declared,
            rerun_number=number,
            outcome=case.outcome,
            outcome_summary=case.summary,
            started_at=began,
            ended_at=began + round(case.took * 1000),
            properties={"stack": case.stack} if case.stack else {},
        )

    def write(self, kind: str, **fields: Any) -> None:
        """Write one line at once; a full disk ends the report, not the tests."""
        line = json.dumps({"type": kind, "schema_version": SCHEMA, **fields}, separators=(",", ":"))
        try:
            if not self.file.closed:
                self.file.write(line.encode("ascii") + b"\n")
        except OSError as error:
            self.file.close()
            warnings.warn(f"the report {self.path} ends early: {error}", stacklevel=1)


def _head() -> dict[str, Any]:
    """Return the report's first line: where the tests run."""
    given = os.environ.get
    names = given("OOTBOT_REPORT_FLAGS", "").replace(",", " ").split()
    return {
        "repo": given("GITHUB_REPOSITORY", ""),
        "github_workflow_job_id": _number("OOTBOT_JOB_ID"),
        "environment": {
            "os": platform.system().lower(),
            "os_version": platform.release(),
            "cpu_architecture": platform.machine(),
            "cpu_capability": "",
            "python_version": platform.python_version(),
            "cc_compiler": "",
            "cc_compiler_version": "",
            "accelerator": _text(given("OOTBOT_ACCELERATOR", "")),
            "accelerator_version": _text(given("OOTBOT_ACCELERATOR_VERSION", "")),
            "device_count": _number("OOTBOT_DEVICE_COUNT"),
            "device_name": _text(given("OOTBOT_DEVICE_NAME", "")),
        },
        "flags": {_text(name): _text(given(name, "")) for name in names if name in os.environ},
        "properties": {"pytest": pytest.__version__},
    }


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _identity(nodeid: str) -> tuple[str, str, str]:
    """Return file, suite and name; as JUnit's readers derive them, so that a test is the same in both."""
    names, bracket, parameters = nodeid.partition("[")
    file, *suites = names.split("::")
    name = suites.pop() if suites else "collection"
    return (
        _text(file[len(ROOT) :] if file.startswith(ROOT) else file),  # noqa: FURB188 - not in Python 3.8
        _text(".".join(suites)),
        _text(name + bracket + parameters),
    )


def _outcome(report: pytest.TestReport) -> str:
    """Return what a phase of a test means for the test."""
    if str(report.outcome) in ("failed", "rerun"):  # pytest-rerunfailures says the second
        return "error" if report.when in ("setup", "teardown") else "failed"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    return str(report.outcome)


def _words(report: pytest.TestReport | pytest.CollectReport) -> tuple[str, str]:
    """Return the message and, of a failure, the end of the stack trace."""
    reason = getattr(report, "wasxfail", "")
    if isinstance(report.longrepr, tuple):  # a skip: file, line and reason
        return _text(str(reason or report.longrepr[2]).replace("Skipped: ", "", 1))[:MOST], ""
    crash = getattr(report.longrepr, "reprcrash", None)
    whole = _text(report.longreprtext).strip()
    message = reason or getattr(crash, "message", "") or whole.rpartition("\n")[2]
    return _text(str(message))[:MOST], "" if report.outcome == "skipped" else whole[-MOST_STACK:]


def _text(text: str) -> str:
    """Return a text without lone surrogates, which JSON's readers refuse."""
    return text.encode("utf-8", "backslashreplace").decode()
