"""Test results in the tables of upstream's test hub: tests, environments and flags by number, and a row an attempt.

Upstream tries these tables out (`clickhouse_db_schema/fortesting`, November 2026). A number is made of the repository,
too, so that what one repository has can be deleted without the others'.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from bot.ci.test_results.exported_tables import case_lines
from bot.ci.test_results.job_tables import test_job
from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bot.db.exports import Key, Row

WHOLE, TEXT, FEW, NUMBER = "Int64", "String", "LowCardinality(String)", "UInt64"
TIME = "DateTime64(3, 'UTC')"
LANGUAGE = "Enum8('unknown' = 0, 'python' = 1, 'cpp' = 2)"
OUTCOMES = ("unknown", "passed", "failed", "error", "skipped", "xfailed", "xpassed", "crashed", "timed_out")
_NUMBERED = ", ".join(f"'{name}' = {number}" for number, name in enumerate(OUTCOMES))
OUTCOME = f"Enum8({_NUMBERED})"
SUMMARY = 256  # characters of what an attempt said
DEVICES_MOST = 255
FLAKY = "flaky"  # the status of a case that passed after it had failed
# upstream's names of what we know of machines
ENVIRONMENT = {
    "os": "os", "cpu_architecture": "arch", "python_version": "python", "accelerator": "accelerator",
    "accelerator_version": "accelerator_version", "device_name": "device_name", "device_count": "device_count",
}  # fmt: skip


def copy_tests(_export: Export) -> TableCopy:
    """Return the copy of the tests that jobs ran."""
    columns = {"id": NUMBER, "repo": FEW, "file": FEW, "suite": TEXT, "case_name": TEXT, "language": LANGUAGE}

    def rows(job: Row) -> Iterator[Mapping[str, Any]]:
        for line in case_lines(job["cases"]):
            yield {
                "id": _test_id(job, line),
                "repo": job["repo"],
                "file": line["file"],
                "suite": line["classname"],
                "case_name": line["name"],
                "language": _language(line["file"]),
            }

    return _table("tests", columns, ("id",), rows, key=("repo",), key_values=_repo_of, shared=True)


def copy_environments(_export: Export) -> TableCopy:
    """Return the copy of the machines that jobs ran on."""
    columns = {"id": NUMBER, **dict.fromkeys(ENVIRONMENT, FEW), "device_count": "UInt8"}

    def rows(job: Row) -> Iterable[Mapping[str, Any]]:
        known = {name: job.get(ours) for name, ours in ENVIRONMENT.items()}
        count = min(job.get("device_count") or 0, DEVICES_MOST)
        return ({**known, "id": _environment_id(job), "device_count": count},)

    return _catalog("environments", columns, rows, _environment_id)


def copy_flags(_export: Export) -> TableCopy:
    """Return the copy of the flags that jobs set."""
    columns = {"id": NUMBER, "flags": f"Map({FEW}, {TEXT})"}

    def rows(job: Row) -> Iterable[Mapping[str, Any]]:
        return ({"id": _flags_id(job), "flags": job["flags"] or {}},)

    return _catalog("flags", columns, rows, _flags_id)


def copy_runs(_export: Export) -> TableCopy:
    """Return the copy of attempts; of when a test began no more is known than when its job did."""
    columns = {
        **dict.fromkeys(("test_id", "env_id", "flags_id"), NUMBER), "github_workflow_job_id": WHOLE,
        "rerun_number": "UInt16", "outcome": OUTCOME, "outcome_summary": TEXT, "started_at": TIME, "ended_at": TIME,
    }  # fmt: skip

    def rows(job: Row) -> Iterator[Mapping[str, Any]]:
        common = {
            "env_id": _environment_id(job),
            "flags_id": _flags_id(job),
            "github_workflow_job_id": job["job_id"],
            "started_at": job["at"],
        }
        for line in case_lines(job["cases"]):
            of_test = {
                "test_id": _test_id(job, line),
                "ended_at": job["at"] + round(1000 * (line["time"] or 0)),
            }
            for number, (outcome, said) in enumerate(_attempts(line)):
                yield {
                    **common,
                    **of_test,
                    "rerun_number": number,
                    "outcome": outcome,
                    "outcome_summary": said[:SUMMARY],
                }

    return _table(
        "runs",
        columns,
        ("test_id", "env_id", "flags_id", "started_at", "github_workflow_job_id", "rerun_number"),
        rows,
        key=("github_workflow_job_id",),
        key_values=lambda key, _row: key[-1:],
        shared=True,  # nothing is deleted first: upstream's table has a projection, which refuses that
    )


def _attempts(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how attempts of a case ended, with what they said: one that failed before, if any, and the last."""
    before = line.get("rerun")
    found = [("failed", (before or {}).get("message") or "")] if before or line["status"] == FLAKY else []
    said = next((line[name]["message"] for name in ("failure", "error", "skipped") if name in line), "")
    status = "passed" if line["status"] == FLAKY else line["status"]
    return [*found, (status if status in OUTCOMES else "unknown", said or "")]


def _table(
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[Row], Iterable[Mapping[str, Any]]],
    **more: Any,
) -> TableCopy:
    return TableCopy(table=ColumnTable(name=f"tests.{name}", columns=columns, order=order), rows=rows, **more)


def _catalog(
    name: str,
    columns: Mapping[str, str],
    rows: Callable[[Row], Iterable[Mapping[str, Any]]],
    number: Callable[[Row], int],
) -> TableCopy:
    """Return the copy of what several jobs of a repository have in common."""

    def key_values(_key: Key, job: Row | None) -> tuple[int] | None:
        return None if job is None else (number(job),)

    return _table(name, columns, ("id",), rows, key=("id",), key_values=key_values, shared=True)


def _repo_of(_key: Key, job: Row | None) -> tuple[str] | None:
    return None if job is None else (job["repo"],)


def _test_id(job: Row, line: Mapping[str, Any]) -> int:
    return _number(job["repo"], line["file"], line["classname"], line["name"], _language(line["file"]))


def _environment_id(job: Row) -> int:
    return _number(job["repo"], *(str(job.get(ours) or "") for ours in ENVIRONMENT.values()))


def _flags_id(job: Row) -> int:
    return _number(job["repo"], *(f"{name}={value}" for name, value in sorted((job["flags"] or {}).items())))


def _language(file: str) -> str:
    return "python" if file.endswith(".py") else "unknown"


def _number(*parts: str) -> int:
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def _export(name: str, make: str, *, cases: bool) -> Export:
    shape = Shape(
        make=f"bot.ci.test_results.exported_hub:{make}",
        read="bot.ci.test_results.store.exported_rows:read_jobs",
        load="bot.ci.test_results.exports:load_job_cases" if cases else "",
        most=2 if cases else 500,
    )
    return Export(
        name=name,
        group="test_hub",
        table=test_job,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        shapes={"clickhouse.upstream": shape},
    )


EXPORTS = (
    _export("hub_runs", "copy_runs", cases=True),
    _export("hub_tests", "copy_tests", cases=True),
    _export("hub_environments", "copy_environments", cases=False),
    _export("hub_flags", "copy_flags", cases=False),
)
