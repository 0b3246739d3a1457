"""The results of a job: as the parser child hands them back, and as a block of three bytes for each case."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from enum import IntEnum
from itertools import accumulate, chain, repeat
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.evidence.tests.parse.cases import Attempt, Declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FORMAT = 1
HEADER = struct.Struct("<BI")
NO_TIME = 2**32 - 1
MOST_CASES = 4_000_000
ATTEMPTS_MOST = 7  # more are written as that
FLAKY = 0x80
BYTES_A_CASE = 9
RULES = 2  # raised when reports are read in another way: what was read before is read again
EXCLUSIONS = ("td_exclusions*.json", "*/td_exclusions*.json")  # members of an archive


class Code(IntEnum):
    """How a case ended; the numbers are those of PyTorch's test hub."""

    PASSED = 1
    FAILED = 2
    ERROR = 3
    SKIPPED = 4
    XFAILED = 5
    XPASSED = 6
    CRASHED = 7
    TIMED_OUT = 8


FAILING = frozenset({Code.FAILED, Code.ERROR, Code.CRASHED, Code.TIMED_OUT})
PASSING = frozenset({Code.PASSED, Code.XPASSED})


class Damaged(Exception):
    """These bytes are not a block."""


class BlockCase(NamedTuple):
    """One case of a block."""

    code: Code
    attempts: int
    is_flaky: bool  # some attempt passed and another one failed
    time_ms: int | None


class Block(NamedTuple):
    """A block, decoded: three arrays of the same length, by ascending test id."""

    ids: Sequence[int]
    codes: Sequence[int]  # outcome | attempts << 4 | FLAKY
    times: Sequence[int]  # milliseconds, or NO_TIME

    def find(self, test_id: int) -> list[BlockCase]:
        """Return the cases of a test: mostly one, several if several files launched it."""
        at, cases_of_test = bisect_left(self.ids, test_id), []
        while at < len(self.ids) and self.ids[at] == test_id:
            code, time = self.codes[at], self.times[at]
            cases_of_test.append(
                BlockCase(
                    outcome_of(code), attempts_of(code), code >= FLAKY, None if time == NO_TIME else time
                )
            )
            at += 1
        return cases_of_test


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


class ExcludedFiles(msgspec.Struct, kw_only=True):
    """The test files that a job left out on purpose, as their parser returns them."""

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


class StoredReports(msgspec.Struct, kw_only=True):
    """What the parser wrote to an artifact's blob."""

    reports: int
    cases: int
    job_ids: list[int]  # that reports name as theirs
    unreadable: list[tuple[str, str]]
    notes: list[tuple[str, str]] = []  # files that are no reports, and what was done to read others


class Exceptional(msgspec.Struct, array_like=True):
    """A case with more to say than that it passed, was skipped, or failed as expected."""

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
    codes: bytes  # outcome and attempts, see bot.evidence.tests.parse.block
    times: bytes  # array of unsigned 32-bit milliseconds, of this machine; 2**32 - 1: not known
    exceptional: list[Exceptional]
    names: msgspec.Raw  # list[str]; needed only where a test is new
    declared: dict[str, Declared]


class Merged(msgspec.Struct, kw_only=True):
    """All reports of a job, merged."""

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


def code_of(outcome: int, attempts: int, *, flaky: bool = False) -> int:
    """Return the byte of an outcome after so many attempts."""
    return outcome | min(attempts, ATTEMPTS_MOST) << 4 | (FLAKY if flaky else 0)


def outcome_of(code: int) -> Code:
    """Return the outcome that a byte encodes."""
    return Code(code & 0xF)


def attempts_of(code: int) -> int:
    """Return the number of attempts that a byte encodes."""
    return code >> 4 & ATTEMPTS_MOST


def encode(cases: Iterable[tuple[int, int, int]]) -> bytes:
    """Return a block of cases: test id, byte of outcome and attempts, milliseconds or NO_TIME; in any order."""
    ordered = sorted(cases)
    ids, codes, times = zip(*ordered, strict=True) if ordered else ((), (), ())
    deltas = array("I", map(sub, ids, chain((0,), ids)))
    packed = zlib.compress(_little(deltas).tobytes() + bytes(codes) + _little(array("I", times)).tobytes(), 6)
    return HEADER.pack(FORMAT, len(ordered)) + packed


def decode(block: bytes) -> Block:
    """Return the cases of a block; raises Damaged."""
    try:
        number, count = HEADER.unpack_from(block)
        if number != FORMAT or count > MOST_CASES:
            raise Damaged(f"format {number} with {count:,} cases")
        size = count * BYTES_A_CASE
        inflating = zlib.decompressobj()
        content = inflating.decompress(block[HEADER.size :], size + 1)
    except (struct.error, zlib.error) as error:
        raise Damaged(str(error)) from error
    if len(content) != size or not inflating.eof:
        raise Damaged("it is cut off")
    deltas, times = array("I"), array("I")
    deltas.frombytes(content[: 4 * count])
    times.frombytes(content[5 * count :])
    return Block(list(accumulate(_little(deltas))), content[4 * count : 5 * count], _little(times))


def cases(block: bytes | None) -> Iterator[tuple[int, int, int]]:
    """Yield test id, byte of outcome and attempts, and milliseconds of the cases of a block, if there is one."""
    return iter(zip(*decode(block), strict=True)) if block else iter(repeat((0, 0, 0), 0))


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
