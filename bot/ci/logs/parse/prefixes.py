"""What processes that start others put in front of each line: cut off, so that rules see the line itself.

Workers of vLLM, Ray and torchrun, tasks of Turborepo, Ant and pnpm, containers of docker compose, steps of BuildKit,
the time stamps of tools, and what `gh run view --log` writes: job, step and time.
"""

from __future__ import annotations

import re2

DISTINCT_MOST = 4  # beyond, each line is looked at by itself
TASK = rb"(?:build|test|lint|check|ci|e2e|unit|type-?check|check-types|compile|coverage|dev|format|prepare)[\w:.-]*"
KINDS = (
    rb"\((?:[\w.:=/ -]{1,80} )?pid=\d+[^)\n]{0,80}\) ",  # (EngineCore_DP0 pid=411)
    rb"(?:CRITICAL|ERROR|WARNING|INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]+:\d+\] ",
    rb"\[(?:rank|default)\d+\]: ?",
    rb" *\[(?:junit|junitlauncher|testng|javac|java|exec)\] ?",
    rb"#\d+ (?:\d+\.\d+ )?",  # BuildKit
    rb"[A-Za-z][\w.-]*[-_]\d+ +\| ",  # docker compose
    rb"\[[@\w][\w./@-]*(?::[\w.-]+)+\] ",  # [backend:ci]
    rb"[@\w][\w./@-]*:" + TASK + rb": ",
    rb"[\w@.-]+/[\w@./-]+ " + TASK + rb": ",
    rb"[^\t\n]{1,200}\t[^\t\n]{1,200}\t\x{FEFF}?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ?",
    rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? ",
    rb"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]? ",
    rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d ",
)
PREFIX = re2.compile(rb"(?m:^)(?:" + rb"|".join(KINDS) + rb")+")


def without_prefixes(text: bytes) -> bytes:
    """Return cleaned lines without what stands in front of the lines themselves."""
    found, distinct = PREFIX.search(text), 0
    if not found:
        return text
    text = b"\n" + text
    found = PREFIX.search(text)
    while found and distinct < DISTINCT_MOST:  # a log has few different ones, unless they hold times
        text = text.replace(b"\n" + found.group(), b"\n")
        found, distinct = PREFIX.search(text, found.start()), distinct + 1
    return (PREFIX.sub(b"", text) if found else text)[1:]


def prefix_length(line: bytes) -> int:
    """Return the length of what stands in front of a cleaned line."""
    found = PREFIX.match(line)
    return found.end() if found else 0
