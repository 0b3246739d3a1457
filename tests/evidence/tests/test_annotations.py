"""Failed tests at their lines of the files that a pull request changes, from backends' reports of tests."""

from __future__ import annotations

from tests.evidence.tests.reported import JOB, leave, xml
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
TRACEBACK = """Traceback (most recent call last):
  File "/builds/project/torch/ops.py", line 7, in add
  File "/builds/project/test/test_ops.py", line 12, in test_add
AssertionError: 3 != 4"""


def failed(name, text="", *, file="test_ops.py", line="", message="3 != 4"):
    at = f' line="{line}"' if line else ""
    return (
        f'<testcase file="{file}"{at} classname="TestOps" name="{name}" time="1">'
        f'<failure type="AssertionError" message="{message}"><![CDATA[{text}]]></failure></testcase>'
    )


async def marks(bot, github, *cases, files=("test/test_ops.py", "src/op.py"), times=1):
    """Path, line and title of what is marked on the pull request's check run."""
    pull = await github.open_pull(UPSTREAM, files=files)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch")
    job = await github.start_job(run, JOB)
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    for _ in range(times):
        await leave(github, run, job, {"a.xml": xml(*cases)}, conclusion="failure")
        await bot.settle(horizon=400)
    checks = {one.name: one for one in github.check_runs(UPSTREAM, pull.head_sha)}
    return [(one["path"], one["start_line"], one["title"]) for one in checks["oot / tpu"].output.annotations]


async def test_a_failed_test_is_marked_at_the_line_of_its_own_file_that_the_traceback_names(bot, github):
    found = await marks(bot, github, failed("test_add", TRACEBACK), times=2)
    assert found == [("test/test_ops.py", 12, f"TestOps.test_add failed in {JOB}")]


async def test_without_a_traceback_the_line_of_the_case_is_marked_and_variants_share_a_mark(bot, github):
    cases = [failed(f"test_add_{one}", line="11") for one in ("int8", "int16")]
    assert [at[:2] for at in await marks(bot, github, *cases)] == [("test/test_ops.py", 12)]  # pytest: from 0


async def test_a_file_that_is_not_changed_or_not_certain_and_paths_that_lead_outside_are_not_marked(
    bot, github
):
    cases = [
        failed("test_far", line="3", file="far.py"),
        failed("test_two_of_that_name", line="3", file="conftest.py"),
        failed("test_outside", line="3", file="../test/test_ops.py"),
        failed("test_no_number", line="3e2"),
        failed("test_beyond", line="99999999999"),
        failed("test_control", line="3", file="test/test_ops.py&#10;"),
        failed("test_only_a_name", 'File "/usr/lib/setup.py", line 3, in x', file="setup.py"),
    ]
    files = ("test/test_ops.py", "a/conftest.py", "b/conftest.py", "setup.py")
    assert await marks(bot, github, *cases, files=files) == []
