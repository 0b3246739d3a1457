"""Does the plugin for pytest write reports that we read, with every attempt, whatever becomes of the run?"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main

PLUGIN = Path(__file__).parents[2] / "actions" / "report"
ALONE = {"PYTHONPATH": str(PLUGIN), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SUITE = """
import unittest, pytest

def test_passes(): pass
def test_fails(): assert 3 == 4, "three is not four \\ud800"
@pytest.mark.parametrize("x", ["1e5", "a::b[c]"])
def test_each(x): pass
@pytest.mark.skip(reason="no card")
def test_skipped(): pass
@pytest.mark.xfail(reason="known")
def test_xfails(): assert False
@pytest.mark.xfail
def test_xpasses(): pass
@pytest.mark.xfail(strict=True)
def test_strict(): pass
@pytest.fixture
def broken(): raise OSError("no device")
def test_setup(broken): pass
@pytest.fixture
def ends_badly():
    yield
    raise OSError("still busy")
def test_teardown(ends_badly): pass
def test_both(ends_badly): assert False, "first"

class TestOps:
    class TestInner:
        def test_deep(self): pass

class TestOld(unittest.TestCase):
    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
"""
# As pytest-rerunfailures does: the failed phase is reported as "rerun", then all begins anew; older ones leave the rest out.
RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            if report.failed and attempt < 2:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
            if report.outcome == "rerun" and BREAKS:
                break
        if not any(report.outcome == "rerun" for report in reports):
            break
        item._initrequest()
    return True
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest on files with the plugin; returns its exit code and what `ootbot tests read` makes of its reports."""

    def run(*options, environ=None, **files):
        for name, text in files.items():
            path = tmp_path / "test" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_reports", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--ootbot-report-prefix", "out/npu", *options, "test"],
            cwd=tmp_path,
            env={**os.environ, **ALONE, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        answer = CliRunner().invoke(main, ["tests", "read", str(tmp_path / "out"), "--json"]).output
        return done, json.loads(answer) if (tmp_path / "out").exists() else None

    return run


def brief(found):
    return {
        case["name"]: (case["outcome"], case["attempts"], case["failed_attempts"]) for case in found["cases"]
    }


def test_every_outcome_is_written_as_pytest_means_it(run):
    _, found = run(test_ops=SUITE)
    assert found["unreadable"] == []
    assert brief(found) == {
        "test_passes": ("passed", 1, 0),
        "test_fails": ("failed", 1, 1),
        "test_each[1e5]": ("passed", 1, 0),
        "test_each[a::b[c]]": ("passed", 1, 0),
        "test_skipped": ("skipped", 1, 0),
        "test_xfails": ("xfailed", 1, 0),
        "test_xpasses": ("xpassed", 1, 0),
        "test_strict": ("failed", 1, 1),
        "test_setup": ("error", 1, 1),
        "test_teardown": ("error", 1, 1),
        "test_both": ("failed", 1, 1),
        "test_deep": ("passed", 1, 0),
        "test_parts": ("failed", 1, 1),
    }
    cases = {case["name"]: case for case in found["cases"]}
    assert {case["file"] for case in found["cases"]} == {"test_ops.py"}
    assert (cases["test_deep"]["suite"], cases["test_passes"]["suite"]) == ("TestOps.TestInner", "")
    assert cases["test_fails"]["message"].startswith("AssertionError: three is not four \\ud800")
    assert cases["test_setup"]["message"] == "OSError: no device"
    assert cases["test_both"]["message"].startswith("AssertionError: first")
    assert cases["test_skipped"]["message"] == "no card"


def test_a_test_is_the_same_as_in_the_junit_report_of_the_same_run(run, tmp_path):
    run("--junitxml=junit.xml", test_ops=SUITE.replace("\\ud800", ""))
    read = CliRunner().invoke(main, ["tests", "read", str(tmp_path / "junit.xml"), "--json"]).output
    known = {(case["file"], case["suite"], case["name"]) for case in json.loads(read)["cases"]}
    read = CliRunner().invoke(main, ["tests", "read", str(tmp_path / "out"), "--json"]).output
    assert {(case["file"], case["suite"], case["name"]) for case in json.loads(read)["cases"]} == known


SUBTESTS = """
import unittest

def test_native(subtests):
    with subtests.test("wrong"):
        assert 3 == 4
    with subtests.test("right"):
        pass

class TestOld(unittest.TestCase):
    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
"""


@pytest.mark.parametrize("breaks", [True, False], ids=["without teardown", "with teardown"])
def test_a_subtest_that_always_fails_is_a_failure_however_often_it_is_run(run, breaks):
    _, found = run(conftest=f"BREAKS = {breaks}\n{RERUNS}", test_ops=SUBTESTS)
    outcomes = {
        name: (outcome, attempts == failed) for name, (outcome, attempts, failed) in brief(found).items()
    }
    assert outcomes == {"test_native": ("failed", True), "test_parts": ("failed", True)}
    assert found["counts"]["flaky"] == 0


@pytest.mark.parametrize("breaks", [True, False], ids=["without teardown", "with teardown"])
def test_every_attempt_of_a_test_that_is_re_run_is_written(run, breaks):
    flaky = """
tries = []
def test_flaky():
    tries.append(1)
    assert len(tries) > 1, "too early"
def test_never(): assert False
def test_passes(): pass
"""
    _, found = run(conftest=f"BREAKS = {breaks}\n{RERUNS}", test_flaky=flaky)
    assert brief(found) == {
        "test_flaky": ("passed", 2, 1),
        "test_never": ("failed", 3, 3),
        "test_passes": ("passed", 1, 0),
    }
    assert found["counts"]["flaky"] == 1
    assert found["cases"][0]["message"] == "AssertionError: too early\nassert 1 > 1\n +  where 1 = len([1])"


def test_what_ended_before_a_crash_is_kept(run):
    done, found = run(test_a="import os\ndef test_first(): pass\ndef test_last(): os._exit(7)\n")
    assert done.returncode == 7
    assert (brief(found), found["unreadable"]) == ({"test_first": ("passed", 1, 0)}, [])


def test_with_xdist_one_report_tells_of_all_workers_and_of_one_that_crashed(run, tmp_path):
    tests = "import os\ndef test_first(): pass\ndef test_kills(): os._exit(7)\ndef test_third(): pass\n"
    _, found = run("-n2", test_a=tests, environ={"PYTEST_ADDOPTS": "-p xdist"})
    assert len(list((tmp_path / "out").iterdir())) == 1
    assert brief(found) == {
        "test_first": ("passed", 1, 0),
        "test_kills": ("failed", 1, 1),
        "test_third": ("passed", 1, 0),
    }
    assert "crashed" in next(case for case in found["cases"] if case["name"] == "test_kills")["message"]


def test_a_file_that_cannot_be_imported_is_an_error(run):
    _, found = run(test_a="import nothing_of_that_name\n", test_b="def test_b(): pass\n")
    (case,) = found["cases"]
    assert (case["file"], case["name"], case["outcome"]) == ("test_a.py", "collection", "error")
    assert "nothing_of_that_name" in case["message"]


def test_the_report_says_which_device_it_was(run, tmp_path):
    given = {
        "OOTBOT_ACCELERATOR": "npu",
        "OOTBOT_DEVICE_COUNT": "8",
        "OOTBOT_JOB_ID": "77",
        "DEVICE_FLAG": "é",
    }
    run(test_a="def test_a(): pass\n", environ=given | {"OOTBOT_REPORT_FLAGS": "DEVICE_FLAG, ABSENT_FLAG"})
    (path,) = (tmp_path / "out").iterdir()
    head = json.loads(path.read_text().splitlines()[0])
    assert path.name == f"npu-{head['report_uuid']}.report.jsonl"
    assert (head["schema_version"], head["github_workflow_job_id"], head["flags"]) == (
        "0.1",
        77,
        {"DEVICE_FLAG": "é"},
    )
    assert (head["environment"]["accelerator"], head["environment"]["device_count"]) == ("npu", 8)


def test_names_in_the_source_are_kept_beside_generated_ones(run, tmp_path):
    tests = """
import functools
def add(self): pass
class TestOps:
    @functools.wraps(add)
    def test_add_npu_float32(self): pass
TestOps.test_add_npu_float32.__name__ = "test_add"
"""
    run("-n2", test_a=tests, environ={"PYTEST_ADDOPTS": "-p xdist"})
    (path,) = (tmp_path / "out").iterdir()
    line = json.loads(path.read_text().splitlines()[1])
    assert (line["case_name"], line["declared_case_name"]) == ("test_add_npu_float32", "test_add")


def test_without_a_prefix_nothing_is_written(run):
    done, found = run("--ootbot-report-prefix=", test_a="def test_a(): pass\n")
    assert (done.returncode, found) == (0, None)


def test_a_place_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "taken").write_text("")
    done, _ = run("--ootbot-report-prefix=taken/npu", test_a="def test_a(): pass\n")
    assert done.returncode == 4
    assert "cannot write the report taken/npu" in done.stderr
