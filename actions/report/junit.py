"""Test counts and failures, read from JUnit XML files.

The files were written by a job that ran a pull request's code, so they are treated as hostile: no
DOCTYPE (and so no entities), a size limit, and a parser that keeps only what is reported.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

MAX_BYTES = 64 * 1024 * 1024  # of all files together
MAX_FAILURES = 1000  # kept in detail; all are counted
MAX_TEXT = 8192  # characters kept of one failure's text; the report cuts further
# Older versions of expat rescan an unfinished token with every chunk, so chunks are large.
PIECE = 1024 * 1024


class UnreadableError(Exception):
    """Test results that cannot be used; the message names the file and why."""


@dataclass
class Outcome:
    """How many tests passed, failed and were skipped, and what is known of the failed ones."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts as a report's `test_results`."""
        return {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}


def read(pattern: str) -> Outcome:
    """Add up the JUnit files that a path or glob names (`**` crosses folders).

    Raises UnreadableError when there is none, or when any of them cannot be read: half a count
    would be a wrong count.
    """
    names = glob.glob(pattern, recursive=True)  # noqa: PTH207 - a Path takes no absolute pattern
    paths = sorted(path for path in map(Path, names) if path.is_file())
    if not paths:
        raise UnreadableError(f"no JUnit file matches {pattern}")
    if sum(path.stat().st_size for path in paths) > MAX_BYTES:
        raise UnreadableError(f"the JUnit files of {pattern} are over {MAX_BYTES >> 20} MiB")
    outcome = Outcome()
    for path in paths:
        try:
            _read_file(path, outcome)
        except (OSError, expat.ExpatError, UnreadableError) as error:
            raise UnreadableError(f"{path} is not a readable JUnit file: {error}") from error
    return outcome


def _read_file(path: Path, outcome: Outcome) -> None:
    """Add one file's tests to the outcome."""
    listener = _Listener(outcome)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = listener.element_starts
    parser.CharacterDataHandler = listener.text
    parser.EndElementHandler = listener.element_ends
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            parser.Parse(piece, False)
    parser.Parse(b"", True)


def _refuse_doctype(*_declaration: object) -> None:
    raise UnreadableError("it has a DOCTYPE, which could define entities")


class _Listener:
    """Handles the parser's events, keeping one test at a time."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.test: dict[str, Any] | None = None
        self.verdict = "passed"
        self.trace: list[str] | None = None  # the pieces of the failure being read
        self.room = 0

    def element_starts(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            self.test, self.verdict = _identity(attributes), "passed"
        elif self.test is None:
            return
        elif tag in {"failure", "error"} and self.verdict != "failed":
            self.verdict = "failed"
            self.trace, self.room = [], MAX_TEXT
            self.test["message"] = attributes.get("message", "")[:MAX_TEXT]
        elif tag == "skipped" and self.verdict == "passed":
            self.verdict = "skipped"

    def text(self, piece: str) -> None:
        if self.trace is not None and self.room > 0:
            self.trace.append(piece[: self.room])
            self.room -= len(piece)

    def element_ends(self, tag: str) -> None:
        if self.test is None:
            return
        if tag in {"failure", "error"} and self.trace is not None:
            self.test["stacktrace"] = "".join(self.trace).strip()
            self.trace = None
        elif tag == "testcase":
            self.count(self.test)
            self.test = None

    def count(self, test: dict[str, Any]) -> None:
        """Add the test just read to the outcome."""
        setattr(self.outcome, self.verdict, getattr(self.outcome, self.verdict) + 1)
        if self.verdict == "failed" and len(self.outcome.failures) < MAX_FAILURES:
            self.outcome.failures.append({key: value for key, value in test.items() if value})


def _identity(attributes: dict[str, str]) -> dict[str, Any]:
    """Return the fields that identify a test; a line that is not a number is omitted."""
    line = attributes.get("line", "")
    return {
        "name": attributes.get("name") or "(unnamed test)",
        "classname": attributes.get("classname"),
        "file": attributes.get("file"),
        "line": int(line) if line.isascii() and line.isdigit() and len(line) < 10 else None,
    }
