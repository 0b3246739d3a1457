"""What the parser child hands back: the reports of one artifact for later merging, and a job's results, merged.

Shared by the bot, which never loads the parser, and its child.
"""

from __future__ import annotations

import msgspec

from bot.ci.test_results.parse.cases import Attempt, Declared

RULES = 2  # raised when reports are read in another way: what was read before is read again
EXCLUSIONS = ("td_exclusions*.json", "*/td_exclusions*.json")  # members of an archive


class Environment(msgspec.Struct, kw_only=True):
    """Where the tests ran, as the report says."""

    os: str = ""
    os_version: str = ""
    cpu_architecture: str = ""
    cpu_capability: str = ""
    python_version: str = ""
    cc_compiler: str = ""
    cc_compiler_version: str = ""
    accelerator: str = ""  # cpu, cuda, …: backends write their own
    accelerator_version: str = ""
    device_count: int = 0
    device_name: str = ""


class LeftOut(msgspec.Struct, kw_only=True):
    """Another parser's answer: the files of tests that a job left out on purpose."""

    files: list[str]  # as the job names them, without `.py`


class GroupPart(msgspec.Struct, array_like=True):
    """The cases of one file and suite in one report."""

    file: str
    suite: str
    invoking_file: str
    names: list[str]
    declared: dict[str, Declared]  # by name, where a run report has it
    times: bytes  # array of signed 32-bit milliseconds, of this machine; -1: not known
    attempts: dict[int, list[Attempt]]  # by position, of all but those that just passed
    properties: dict[str, dict[str, str]] = {}  # by name, of cases that failed
    repeats: dict[int, int] = {}  # how many cases are held for one, by position


class HeadPart(msgspec.Struct, array_like=True):
    """What a run report says of itself."""

    report_uuid: str
    job_id: int
    environment: Environment
    started_at: float | None = None  # see run_report.RunReport
    flags: dict[str, str] = {}
    properties: dict[str, str] = {}


class ReportPart(msgspec.Struct, array_like=True):
    """One report of an artifact."""

    member: str
    digest: bytes
    head: HeadPart | None  # None: JUnit
    groups: list[GroupPart]


class Stored(msgspec.Struct, kw_only=True):
    """The parser's answer: what of an artifact is now in the blob."""

    reports: int
    cases: int
    job_ids: list[int]  # that reports name as theirs
    unreadable: list[tuple[str, str]]
    notes: list[tuple[str, str]] = []  # files that are no reports, and what was done to read others


class Exceptional(msgspec.Struct, array_like=True):
    """A case with more to say than that it passed, was skipped or failed as expected."""

    position: int  # in its group
    flaky: bool
    attempts: int
    failed_attempts: int
    type: str
    message: str
    stack: str
    output: str
    line: int | None = None  # of the case in its file
    properties: dict[str, str] = {}  # of its newest failed attempt


class MergedGroup(msgspec.Struct, array_like=True):
    """The cases of one file and suite of a job."""

    file: str
    suite: str
    invoking_file: str
    digests: bytes  # 16 each
    codes: bytes  # outcome and attempts, see bot.ci.test_results.parse.block
    times: bytes  # array of unsigned 32-bit milliseconds, of this machine; 2**32 - 1: not known
    exceptional: list[Exceptional]
    names: msgspec.Raw  # list[str]; needed only where a test is new
    declared: dict[str, Declared]


class Merged(msgspec.Struct, kw_only=True):
    """What all reports of a job say together."""

    counts: dict[str, int]
    time_ms: int
    files: int
    repeats: bool  # nearly all cases are repetitions of few: a run of disabled tests
    left_out: int  # exceptional cases over the limit
    environment: Environment | None
    unreadable: list[tuple[str, str]]
    groups: list[MergedGroup]
    flags: dict[str, str] = {}  # of the run report that began first, as the environment
    properties: dict[str, str] = {}
