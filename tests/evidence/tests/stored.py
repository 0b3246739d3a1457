"""What is stored of test results, without internal ids; and reports of three kinds of jobs."""

from __future__ import annotations

from bot.evidence.tests import days
from bot.evidence.tests.parse import block
from tests.evidence.tests.reported import case, jsonl, xml

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
