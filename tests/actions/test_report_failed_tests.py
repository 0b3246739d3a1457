"""The action's script: what it tells of failed tests."""

import json

import pytest

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="s">
  <testcase name="test_adds" classname="ops" time="0.1"/>
  <testcase name="test_logs" classname="ops"><system-out>&lt;failure/&gt;</system-out></testcase>
  <testcase name="test_breaks" classname="ops" file="ops.py" line="12">
    <failure message="1 != 2">Traceback: é &amp; co</failure><error message="later"/>
  </testcase>
  <testsuite><testcase name="test_crashes"><error message="segfault"/></testcase></testsuite>
  <testcase name="test_waits"><skipped message="no card"/></testcase>
</testsuite></testsuites>
"""


async def test_junit_files_are_counted_and_their_failures_told(service, job):
    (job.folder / "out" / "a").mkdir(parents=True)
    (job.folder / "out" / "a" / "one.xml").write_text(JUNIT)
    (job.folder / "out" / "two.xml").write_text('<testsuite><testcase name="t"/></testsuite>')

    code, _ = await job.report(status="completed", conclusion="failure", test_results="junit:out/**/*.xml")

    assert code == 0
    assert service.workflow["test_results"] == {"passed": 3, "failed": 2, "skipped": 1}
    assert service.workflow["failed_tests"] == [
        {
            "name": "test_breaks",
            "classname": "ops",
            "file": "ops.py",
            "line": 12,
            "message": "1 != 2",
            "stacktrace": "Traceback: é & co",
        },
        {"name": "test_crashes", "message": "segfault"},
    ]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuite>&b;</testsuite>'


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ("junit:bomb.xml", "DOCTYPE"),
        ("junit:half.xml", "half.xml"),
        ("junit:*.xml", "not a readable JUnit file"),
        ("junit:none/*.xml", "no JUnit file matches"),
        ('{"passed": -1}', "passed is not a count"),
        ("[1]", "not a JSON object"),
        ("about 20", "neither JSON nor junit:PATH"),
    ],
)
async def test_results_that_cannot_be_read_do_not_keep_the_conclusion_back(service, job, results, reason):
    (job.folder / "bomb.xml").write_text(BOMB)
    (job.folder / "good.xml").write_text(JUNIT)
    (job.folder / "half.xml").write_text(JUNIT[:300])

    code, output = await job.report(status="completed", conclusion="failure", test_results=results)

    assert code == 0
    assert output.startswith("::warning title=ootbot report::`test-results` are left out: ")
    assert reason in output
    assert service.workflow["conclusion"] == "failure"
    assert not {"test_results", "failed_tests"} & service.workflow.keys()


async def test_failed_tests_are_cut_to_what_the_bot_takes(service, job):
    tests = [{"name": f"t{n}", "message": "é" * 900, "stacktrace": "\n" * 9000} for n in range(1500)]
    (job.folder / "failed.json").write_text(json.dumps(tests))

    code, _ = await job.report(
        status="completed",
        conclusion="failure",
        test_results='{"passed": 0, "failed": 1500}',
        failed_tests="failed.json",
    )

    assert code == 0
    assert service.sizes[0] <= 2 * 1024 * 1024
    assert service.workflow["test_results"]["failed"] == 1500
    told = service.workflow["failed_tests"]
    assert 100 < len(told) <= 1000
    assert told[0] == {"name": "t0", "message": "é" * 512}


async def test_stack_traces_of_the_first_failures_are_kept_as_long_as_they_fit(service, job):
    tests = [{"name": f"t{n}", "message": "m", "stacktrace": "x" * 9000} for n in range(900)]
    (job.folder / "failed.json").write_text(json.dumps(tests))

    await job.report(status="completed", conclusion="failure", failed_tests="failed.json")

    told = service.workflow["failed_tests"]
    assert service.sizes[0] <= 2 * 1024 * 1024
    assert len(told) == 900
    assert told[0]["stacktrace"] == "x" * 4096
    assert "stacktrace" not in told[-1]
