"""What the bot shares with the children that read logs: options, steps of jobs, signatures of failures.

What the parser answers is in `bot.evidence.logs.tables`.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import re2

from bot.core import json_fields
from bot.evidence.logs.parse.rulesets import Ruleset

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS_MOST = 1000
WORKSPACE = re2.compile(r"(?:/home/[^\s:]*?/_?work/[^\s/:]+/[^\s/:]+|/__w/[^\s/:]+/[^\s/:]+)")
TEMPORARY = re2.compile(r"/tmp/[^\s:;,'\"`)\]}>]*")  # noqa: S108 - looked for, not used
HEX = re2.compile(r"(?:0[xX])?[0-9a-fA-F]{8,}")
DIGITS = re2.compile(r"[0-9]{4,}")
SPACE = re2.compile(r"\s+")


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job, as GitHub's workflow_job has it."""

    name: str
    number: int = 0
    started_at: str | None = None


json_fields.learn(JobStep)


class ParserOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What GitHub says of the job and its log does not."""

    ruleset: Ruleset | None = None  # None: the log is kept, not classified, as that of a success
    steps: tuple[JobStep, ...] = ()
    annotations: tuple[str, ...] = ()  # errors that GitHub notes beside the job


class SearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for in a log."""

    pattern: str
    most: int  # lines


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line that matches."""

    line_num: int
    line: str


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a log."""

    hits: list[SearchHit]
    more: bool  # there are more lines that match
    whole: bool  # nothing of the log was left out for want of time
    seconds: float  # of processor time


def parse_steps(stored: object) -> tuple[JobStep, ...]:
    """Return the steps of a job record, which are GitHub's JSON."""
    steps = []
    for step in stored[:STEPS_MOST] if isinstance(stored, list) else ():
        try:
            steps.append(msgspec.convert(step, JobStep))
        except msgspec.ValidationError:
            continue
    return tuple(steps)


def step_at(steps: Sequence[JobStep], at: int | None) -> str | None:
    """Return the name of the step that had begun last at a time (epoch milliseconds; steps have whole seconds)."""
    if at is None:
        return None
    begun = [(begin, step.number, step.name) for step in steps if (begin := _start_of_step(step)) is not None]
    started = [step for step in begun if step[0] <= at // 1000]
    return max(started)[2] if started else None


def _start_of_step(step: JobStep) -> int | None:
    try:
        return int(datetime.fromisoformat(step.started_at or "").timestamp())
    except (ValueError, OverflowError):
        return None


def normalize_capture(capture: str) -> str:
    """Remove from a capture what differs from run to run: the machine's paths, addresses, hashes, long numbers."""
    text = TEMPORARY.sub("<path>", WORKSPACE.sub("<path>", capture))
    text = HEX.sub(lambda match: "<n>" if match.group().isdigit() else "<hex>", text)
    return str(SPACE.sub(" ", DIGITS.sub("<n>", text)).strip())


def make_signature(rule: str, captures: Sequence[str]) -> str:
    """Name a failure so that failures that are likely the same have the same name."""
    parts = [rule, *(normalize_capture(capture) for capture in captures)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def make_title(rule: str, captures: Sequence[str]) -> str:
    """Return a readable name of a failure: its rule and its normalized captures."""
    return f"{rule}: {' '.join(normalize_capture(capture) for capture in captures)}"[:300]
