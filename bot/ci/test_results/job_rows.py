"""The rows and the block of a job, from its merged results and the ids of its tests. Pure."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.ci.test_results import source_lines
from bot.ci.test_results.parse import block
from bot.ci.test_results.parse.block import NO_TIME, Code, outcome_of
from bot.ci.test_results.parse.identity import DIGEST

if TYPE_CHECKING:
    from bot.ci.test_results.parse.parsed import Exceptional, Merged, MergedGroup
    from bot.ci.test_results.store.known_tests import Known

MESSAGE_LINE = 300  # characters of a message that tell failures apart
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?|/[\w./-]+/")
SUCCESSES = frozenset({Code.PASSED, Code.XFAILED, Code.XPASSED})


class Made(NamedTuple):
    """What is stored of a job."""

    block: bytes
    summaries: list[dict[str, Any]]
    failures: list[dict[str, Any]]


def make_rows(merged: Merged, known: Known, of_summary: dict[str, Any], of_failure: dict[str, Any]) -> Made:
    """Return a job's block and rows; the two mappings are columns that all rows of a kind share."""
    cases: list[tuple[int, int, int]] = []
    summaries, failures = [], []
    for group in merged.groups:
        digests, times = group.digests, array("I", group.times)
        ids = [known.tests[digests[at : at + DIGEST]] for at in range(0, len(digests), DIGEST)]
        cases.extend(zip(ids, group.codes, times, strict=True))
        if any(outcome_of(code) is not Code.CRASHED for code in group.codes):
            summaries.append(of_summary | _summary(group, times, known))
        failures += [
            of_failure | _failure(one, group, ids[one.position], times[one.position])
            for one in group.exceptional
        ]
    return Made(block.encode(cases), summaries, failures)


def _summary(group: MergedGroup, times: array[int], known: Known) -> dict[str, Any]:
    codes = Counter(group.codes)
    outcomes: Counter[int] = Counter()
    for code, count in codes.items():
        outcomes[code & 0xF] += count
    return {
        "class_id": known.classes[group.file, group.suite],
        "invoking_file": group.invoking_file,
        "tests": len(group.codes),
        "failures": outcomes[Code.FAILED] + outcomes[Code.TIMED_OUT],
        "errors": outcomes[Code.ERROR],
        "skipped": outcomes[Code.SKIPPED],
        "successes": sum(outcomes[code] for code in SUCCESSES),
        "flaky": sum(one.flaky for one in group.exceptional),
        "time_ms": sum(time for time in times if time != NO_TIME),
    }


def _failure(one: Exceptional, group: MergedGroup, test_id: int, time: int) -> dict[str, Any]:
    failed_at = source_lines.find(group.file, one.line, one.stack, one.message, one.output)
    return {
        "test_id": test_id,
        "invoking_file": group.invoking_file,
        "outcome": group.codes[one.position] & 0xF,
        "flaky": one.flaky,
        "attempts": one.attempts,
        "failed_attempts": one.failed_attempts,
        "time_ms": None if time == NO_TIME else time,
        "type": one.type,
        "message": one.message,
        "stack": one.stack,
        "output": one.output,
        "source_file": failed_at and failed_at.file,
        "line": failed_at and failed_at.line,
        "signature": signature(one.type, one.message) if one.failed_attempts else None,
        "verdict": None,
        "evidence": None,
        "properties": one.properties or None,
    }


def signature(kind: str, message: str) -> str | None:
    """Return what failures that say the same have in common: their first line, without numbers and paths."""
    line = message.strip().partition("\n")[0][:MESSAGE_LINE]
    if not line and not kind:
        return None
    text = f"{kind}\0{_CHANGING.sub('#', line)}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
