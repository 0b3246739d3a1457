"""What an issue disables: its title and body, in the form that PyTorch's CI has given them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

DISABLED, UNSTABLE = "DISABLED", "UNSTABLE"
MULTIPLE = "MULTIPLE"
PLATFORMS = frozenset(
    {"asan", "linux", "mac", "macos", "rocm", "xpu", "slow", "win", "windows", "dynamo", "inductor"}
)
BODY_MOST = 65_536  # characters: GitHub's own limit
LINES_MOST = 2_000  # tests of one issue
PROBLEMS_MOST = 20
SHOWN = 80  # characters of what was not understood
JOB_PARTS = 3
HEADING = "disable the following tests:"
FENCE = "```"
LABEL = "platforms:"
_TEST = re.compile(r"\s*(test_[a-zA-Z0-9\-_.]+)\s+\(([a-zA-Z0-9\-_.]+)\)\s*")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A test or job, and the platforms (none: all) on which it is disabled."""

    name: str  # test_x (__main__.TestY), or the job's name
    platforms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an issue asks for. Without entries it changes nothing, and the problems say why."""

    kind: Literal["test", "job"]
    unstable: bool = False
    entries: tuple[Entry, ...] = ()
    problems: tuple[str, ...] = ()


def read_issue(title: str, body: str | None, devices: Collection[str]) -> Reading:
    """Read what an issue asks for; `devices` (case-folded) also count as platforms."""
    word, _, name = title.partition(" ")
    name, known = name.strip(), PLATFORMS | set(devices)
    lines = (body or "")[:BODY_MOST].splitlines()
    if word == UNSTABLE:
        return _job(name, unstable=True)
    if name.split(maxsplit=1)[:1] == [MULTIPLE]:
        return _several(lines, known)
    test = _TEST.fullmatch(name)
    if test is None:
        return _job(name, unstable=False)
    stated = next((line.strip() for line in lines if line.strip().lower().startswith(LABEL)), LABEL)
    entries, problems = _entry(test, stated[len(LABEL) :], known)
    return Reading(kind="test", entries=tuple(entries), problems=tuple(problems))


def is_test(text: str) -> bool:
    """Whether a text names a test in the form issues must use."""
    return _TEST.fullmatch(text) is not None


def job_parts(name: str) -> tuple[str, str, str]:
    """Split a job's name into workflow, platform and configuration; missing parts are empty."""
    parts = [part.strip() for part in name.split("/", JOB_PARTS - 1)]
    workflow, platform, config = parts + [""] * (JOB_PARTS - len(parts))
    return workflow, platform, config


def _job(name: str, *, unstable: bool) -> Reading:
    if not name:
        return Reading(kind="job", unstable=unstable, problems=("the title names nothing",))
    if name.startswith("test_") and "/" not in name and not unstable:
        problem = "the title names neither a test, as in test_x (__main__.TestY), nor a job of a workflow"
        return Reading(kind="test", problems=(problem,))
    return Reading(kind="job", unstable=unstable, entries=(Entry(name=name),))


def _several(lines: list[str], known: Collection[str]) -> Reading:
    """Read the list in an issue about several tests."""
    listed = _block(lines)
    if listed is None:
        problem = f"the body has no line `{HEADING}` with a code block below it"
        return Reading(kind="test", problems=(problem,))
    entries: list[Entry] = []
    problems: list[str] = []
    for line in islice(listed, LINES_MOST):
        name, _, platforms = line.partition(":")
        test = _TEST.fullmatch(name)
        if test is None:
            problems.append(f"not a test with its class: {_shown(line)}")
            continue
        read, wrong = _entry(test, platforms, known)
        entries += read
        problems += [f"{name.strip()}: {problem}" for problem in wrong]
    if not entries and not problems:
        problems.append("the code block lists no test")
    if len(problems) > PROBLEMS_MOST:
        problems[PROBLEMS_MOST:] = [f"and {len(problems) - PROBLEMS_MOST} more"]
    return Reading(kind="test", entries=tuple(entries), problems=tuple(problems))


def _block(lines: list[str]) -> Iterator[str] | None:
    """Return the non-blank lines of the first code block below the heading."""
    rest = iter(lines)
    if not any(line.strip().lower() == HEADING for line in rest):
        return None
    if not any(line.strip().startswith(FENCE) for line in rest):
        return None
    inside = []
    for line in rest:
        if line.strip().startswith(FENCE):
            break
        if line.strip():
            inside.append(line)
    return iter(inside)


def _entry(test: re.Match[str], platforms: str, known: Collection[str]) -> tuple[list[Entry], list[str]]:
    """Return the entry of a test and the problems with its platforms; only unknown platforms disable nothing."""
    words = list(dict.fromkeys(word.strip().casefold() for word in platforms.split(",") if word.strip()))
    problems = [f"unknown platform: {_shown(word)}" for word in words if word not in known]
    kept = sorted(word for word in words if word in known)
    if words and not kept:
        return [], [*problems[:PROBLEMS_MOST], "no platform is left, so nothing is disabled"]
    name = f"{test[1]} ({test[2]})"
    return [Entry(name=name, platforms=tuple(kept))], problems[:PROBLEMS_MOST]


def _shown(text: str) -> str:
    return escaping.shorten(escaping.one_line(text), SHOWN)
