"""Runs of the tests' GitHub that leave reports, what became of them, and what is stored of their results."""

from __future__ import annotations

import json

from bot.evidence.tests import days
from bot.evidence.tests.parse import block
from bot.evidence.tests.tables import test, test_class
from tests.harness import UPSTREAM

JOB = "linux-jammy-py3.10-cuda / test (default, 1, 2, linux.large)"
INTERNAL = {
    "generation",
    "received_at",
    "env_id",
    "block",
    "counted",
    "counted_block",
    "class_id",
    "id",
    "test_id",
    "page",
}
JOBS = ("a", "b", "c")


def case(name, outcome="passed", *, file="test_ops.py", suite="TestOps", time="0.25", message="boom"):
    """A case of JUnit XML."""
    child = {
        "passed": "",
        "failed": f'<failure type="AssertionError" message="{message}">line 1\nline 2</failure>',
        "error": f'<error message="{message}"/>',
        "skipped": '<skipped message="why"/>',
        "flaky": f'<rerun message="{message}"/>',
    }[outcome]
    return f'<testcase file="{file}" classname="{suite}" name="{name}" time="{time}">{child}</testcase>'


def xml(*cases):
    return f"<testsuites><testsuite name='pytest'>{''.join(cases)}</testsuite></testsuites>".encode()


def jsonl(*lines, uuid="u1", job_id=0, at=0, **environment):
    """A run report of (file, suite, name, outcome[, rerun]) that began at a time."""
    head = {
        "type": "report", "schema_version": "0.1", "report_uuid": uuid, "repo": UPSTREAM,
        "github_workflow_job_id": job_id, "environment": environment,
    }  # fmt: skip
    runs = [
        {
            "type": "run", "schema_version": "0.1", "file": file, "suite": suite, "case_name": name,
            "outcome": outcome, "rerun_number": number[0] if number else 0, "started_at": at, "ended_at": at + 50,
        }
        for file, suite, name, outcome, *number in lines
    ]  # fmt: skip
    return "\n".join(map(json.dumps, [head, *runs])).encode() + b"\n"


async def ran(github, files, *, name=JOB, repo=UPSTREAM, conclusion="success", **run):
    """A run of one job that left an artifact; returns run and job."""
    run.setdefault("event", "push")
    started = await github.start_run(repo, **run)
    job = await github.start_job(started, name)
    await leave(github, started, job, files, conclusion=conclusion)
    return started, job


async def leave(github, run, job, files, *, conclusion="success"):
    """End a run's only job, with an artifact of reports."""
    github.add_artifact(run, f"test-reports-test-default-1-2-linux.large_{job.id}", files)
    await github.finish_job(job, conclusion)
    await github.finish_run(run, conclusion)


async def known_tests(bot):
    """Name of each test by its id."""
    classes = {row["id"]: row for row in await bot.rows(test_class.name)}
    return {
        row["id"]: (classes[row["class_id"]]["file"], classes[row["class_id"]]["suite"], row["name"])
        for row in await bot.rows(test.name)
    }


async def outcomes(bot, **of):
    """What the blocks of all jobs say: (name, outcome, attempts, milliseconds)."""
    names = await known_tests(bot)
    found = []
    for row in await bot.rows("test_job"):
        if all(row[column] == value for column, value in of.items()):
            found += [
                (names[test_id][2], block.outcome_of(code).name.lower(), block.attempts_of(code), time)
                for test_id, code, time in block.cases(row["block"])
            ]
    return sorted(found)


def plain(row):
    return {name: value for name, value in row.items() if name not in INTERNAL}


def shown(rows):
    """All that readers see, without internal ids; `rows` returns a table's."""
    classes = {row["id"]: (row["file"], row["suite"]) for row in rows("test_class")}
    tests = {row["id"]: (*classes[row["class_id"]], row["name"]) for row in rows("test")}
    envs = {row["id"]: row["env_group"] for row in rows("test_env")}
    jobs = {row["generation"]: row for row in rows("test_job")}
    key = {generation: (row["run_id"], row["job_id"]) for generation, row in jobs.items()}

    def cases(content):
        return sorted((tests[test_id], code, time) for test_id, code, time in block.cases(content))

    return {
        "jobs": sorted((key[one], str(plain(row)), cases(row["block"]), envs[row["env_id"]]) for one, row in jobs.items()),
        "tests": sorted((tests[row["id"]], str(plain(row))) for row in rows("test")),
        "failures": sorted(
            (key[row["generation"]], tests[row["test_id"]], str(plain(row)))
            for row in rows("test_failure") if row["generation"] in key
        ),
        "suites": sorted(
            (key[row["generation"]], classes[row["class_id"]], str(plain(row)))
            for row in rows("test_summary") if row["generation"] in key
        ),
        "days": sorted(
            (row["day"], tests[test_id], group, counts)
            for row in rows("test_day")
            for test_id, group, counts in days.counts_of_tests(row["counts"], tests)
            if days.page_of_test(test_id) == row["page"]
        ),
    }  # fmt: skip


def reports(letter):
    outcome = {"a": "passed", "b": "failed", "c": "flaky"}[letter]
    return {
        f"{letter}.xml": xml(
            case("test_one", outcome), case(f"test_{letter}"), case("test_two", file=f"{letter}.py")
        )
    }


def run_report(letter):
    return {f"{letter}.report.jsonl": jsonl((f"{letter}.py", "TestOps", "test_two", "failed"), uuid=letter)}
