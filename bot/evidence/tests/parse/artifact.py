"""The parsers of test reports and of excluded files, in the parser child, and the merge of a job's parts."""

from __future__ import annotations

import re
import struct
from array import array
from collections import Counter
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from bot.core.zstd import zstd
from bot.evidence.collect.parse import archives
from bot.evidence.collect.parse.contract import Broken, NotRead, Refused
from bot.evidence.tests.parse import reports
from bot.evidence.tests.parse.block import (
    EXCLUSIONS,
    Exceptional,
    ExcludedFiles,
    GroupPart,
    HeadPart,
    Merged,
    MergedGroup,
    ReportPart,
    StoredReports,
    code_of,
)
from bot.evidence.tests.parse.cases import FAILING, JUST_PASSED, Cases, Group, Outcome, is_flaky
from bot.evidence.tests.parse.junit import NoReport
from bot.evidence.tests.parse.run_report import ReportHead
from bot.evidence.tests.parse.texts import (
    PROPERTIES_OF_REPORT,
    SourcePlace,
    digest,
    kept_properties,
    without_ending,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from bot.evidence.collect.parse.archives import Member
    from bot.evidence.collect.parse.contract import ParserInput
    from bot.evidence.tests.parse.cases import Attempt
    from bot.evidence.tests.parse.reports import Pieces

LEVEL = 3
LENGTH = struct.Struct("<I")
PART_MOST = 512 * 1024 * 1024  # bytes of an artifact's reports as they are kept, inflated
PIECE = 1024 * 1024
UNREADABLE_MOST = 200  # that are named
REASON_MOST = 300  # characters
MEMBER_MOST = 1_000
NOTES_MOST = 50
EXCEPTIONAL_MOST = 2_000  # cases of a job with texts
PASSED = bytes([code_of(Outcome.PASSED, 1)])
QUIET = frozenset({Outcome.SKIPPED, Outcome.XFAILED, Outcome.XPASSED, Outcome.PASSED})
REPEATS_LEAST = 10  # repetitions of a test
REPEATS_SHARE = 0.9  # of all cases
_REPEAT = re.compile(r"(.*)\[\d+(?:-\d+)?\]", re.DOTALL)  # x[3], x[3-50]
RERUN_NOTE = '{"num_green"'  # begins what a run of disabled tests says of a case that it skipped
FILES_MOST = 5_000  # of a job
BYTES_MOST = 8 * 1024 * 1024  # of one document


class _Found(NamedTuple):
    """An encoded report, with what it is ordered by."""

    member: str
    digest: bytes
    encoded: bytes


class _ExcludedFile(msgspec.Struct):
    test_file: str


class _ExclusionsDocument(msgspec.Struct):
    excluded: list[_ExcludedFile] = []


_DECODER = msgspec.json.Decoder(_ExclusionsDocument)


def parse_artifact(given: ParserInput) -> StoredReports:
    """Write the reports of an artifact, or of one uploaded file, to the blob.

    Raises Refused and Broken, with what is missing as the answer, where no report could be read.
    """
    options = given.options or {}
    with given.blob.open("wb") as blob:
        writer = _Writer(blob)
        with given.path.open("rb") as file:
            is_archive = file.read(2) == b"PK"
        try:
            if is_archive:
                reports.read_archive(writer, given.path)
            else:
                reports.read_file(writer, given.path, options.get("name", "report.xml"))
        except NotRead as error:
            writer.refuse(options.get("artifact", given.path.name), str(error))
            if not writer.stored.reports:
                error.answer = writer.stored
                raise
        finally:
            writer.finish()
    if writer.stored.unreadable and not writer.stored.reports:
        member, reason = writer.stored.unreadable[0]
        raise Broken(f"no report in it can be read; {member}: {reason}", answer=writer.stored)
    return writer.stored


def merge_parts(given: ParserInput) -> Merged:
    """Merge the parts of a job in a folder."""
    results = reports.Results()
    parts = [part for path in sorted(given.path.iterdir()) for part in _parts(path)]
    parts.sort(key=lambda part: (part.member, part.digest))
    for part in parts:
        try:
            results.merge(_report_of(part))
        except Refused as error:
            results.refuse(part.member, str(error))
    return _merged(results)


def is_repeats(names: Iterable[str]) -> bool:
    """Whether nine in ten cases are among ten or more repetitions of a test."""
    repeated: Counter[str] = Counter()
    count = 0
    for name in names:
        count += 1
        if name.endswith("]") and (repeat := _REPEAT.fullmatch(name)):
            repeated[repeat[1]] += 1
    many = sum(times for times in repeated.values() if times >= REPEATS_LEAST)
    return count > 0 and many >= REPEATS_SHARE * count


def parse_exclusions(given: ParserInput) -> ExcludedFiles:
    """Return the files named by all documents of an archive; raises Broken if one cannot be read."""
    files: set[str] = set()
    with archives.open_archive(given.path) as archive:
        for member in archives.readable_members(archive):
            if any(fnmatchcase(member.name, pattern) for pattern in EXCLUSIONS):
                files |= {
                    without_ending(excluded.test_file) for excluded in _read_exclusions(member).excluded
                }
    files.discard("")
    if len(files) > FILES_MOST:
        raise Refused(f"over {FILES_MOST:,} files left out")
    return ExcludedFiles(files=sorted(files))


class _Writer:
    """Writes reports as they are read."""

    def __init__(self, blob: IO[bytes]) -> None:
        self._blob = blob
        self._compressor = zstd.ZstdCompressor(LEVEL)
        self.stored = StoredReports(reports=0, cases=0, job_ids=[], unreadable=[], notes=[])

    def add(self, member: str, pieces: Pieces) -> None:
        try:
            report = reports.parse_report(member, pieces)
        except NoReport as error:
            self._note(member, str(error))
            return
        except (Broken, Refused) as error:
            self.refuse(member, str(error))
            return
        encoded = msgspec.msgpack.encode(_part_of(report))
        self._blob.write(self._compressor.compress(LENGTH.pack(len(encoded)) + encoded))
        self.stored.reports += 1
        self.stored.cases += len(report.cases)
        for note in report.notes:
            self._note(member, note)
        if report.head and report.head.github_workflow_job_id not in {0, *self.stored.job_ids}:
            self.stored.job_ids.append(report.head.github_workflow_job_id)

    def refuse(self, member: str, reason: str) -> None:
        if len(self.stored.unreadable) < UNREADABLE_MOST:
            self.stored.unreadable.append((_text(member[:REASON_MOST]), _text(reason[:REASON_MOST])))

    def _note(self, member: str, words: str) -> None:
        if len(self.stored.notes) < NOTES_MOST:
            self.stored.notes.append((_text(member[:REASON_MOST]), _text(words[:REASON_MOST])))

    def finish(self) -> None:
        self._blob.write(self._compressor.flush())


def _part_of(report: reports.Report) -> ReportPart:
    head = report.head
    return ReportPart(
        member=_text(report.member[-MEMBER_MOST:]),
        digest=report.digest,
        head=HeadPart(
            _text(head.report_uuid),
            head.github_workflow_job_id,
            head.environment,
            report.started_at,
            kept_properties(head.flags, PROPERTIES_OF_REPORT),
            kept_properties(head.properties, PROPERTIES_OF_REPORT),
        )
        if head
        else None,
        groups=[
            GroupPart(
                file=_text(place.file),
                suite=_text(place.suite),
                invoking_file=_text(place.invoking_file),
                names=[_text(name) for name in group.in_order()],
                declared=group.declared,
                times=group.times.tobytes(),
                attempts=group.attempts,
                properties=group.properties,
                repeats=group.repeats,
            )
            for place, group in report.cases.groups.items()
        ],
    )


def _text(text: str) -> str:
    """Return a text without NUL, which no database takes."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _parts(path: Path) -> Iterator[_Found]:
    """Yield the reports of a part."""
    order = msgspec.msgpack.Decoder(type=tuple[str, bytes, msgspec.Raw, msgspec.Raw])
    for encoded in _frames(path):
        member, digest_, _, _ = order.decode(encoded)
        yield _Found(member, digest_, encoded)


def _frames(path: Path) -> Iterator[bytes]:
    waiting, inflated = bytearray(), 0
    with zstd.open(path) as file:
        while piece := file.read(PIECE):
            inflated += len(piece)
            if inflated > PART_MOST:
                raise Refused(f"reports of over {PART_MOST // PIECE} MiB")
            waiting += piece
            while len(waiting) >= LENGTH.size:
                (length,) = LENGTH.unpack_from(waiting)
                if len(waiting) < LENGTH.size + length:
                    break
                yield bytes(waiting[LENGTH.size : LENGTH.size + length])
                del waiting[: LENGTH.size + length]


def _report_of(encoded: _Found) -> reports.Report:
    part = msgspec.msgpack.decode(encoded.encoded, type=ReportPart)
    cases = Cases()
    for group_part in part.groups:
        group = cases.groups[SourcePlace(group_part.file, group_part.suite, group_part.invoking_file)] = (
            Group()
        )
        group.names = {name: position for position, name in enumerate(group_part.names)}
        group.times = array("i", group_part.times)
        group.suites = array("I", bytes(4 * len(group_part.names)))
        group.lines = array("i", bytes(4 * len(group_part.names)))
        group.repeats = group_part.repeats
        group.attempts = group_part.attempts
        group.declared = group_part.declared
        group.properties = group_part.properties
    head = None
    if part.head:
        head = ReportHead(
            schema_version="",
            report_uuid=part.head.report_uuid,
            github_workflow_job_id=part.head.job_id,
            environment=part.head.environment,
            flags=part.head.flags,
            properties=part.head.properties,
        )
    began = part.head.started_at if part.head else None
    return reports.Report(part.member, part.digest, cases, head, began)


def _merged(results: reports.Results) -> Merged:
    places = sorted(results.groups(), key=lambda placed: placed[0])
    groups, left_out = [], 0
    remaining = EXCEPTIONAL_MOST
    for place, group in places:
        names = group.in_order()
        exceptional = [
            _exceptional(position, attempts, group.properties.get(names[position], {}))
            for position, attempts in sorted(group.attempts.items())
            if _says_more(attempts)
        ]
        left_out += max(len(exceptional) - remaining, 0)
        exceptional = exceptional[:remaining]
        remaining -= len(exceptional)
        groups.append(_group(place, group, names, exceptional))
    return Merged(
        counts=results.counts(),
        time_ms=sum(max(time, 0) for _, group in places for time in group.times),
        files=results.read,
        repeats=is_repeats(name for _, group in places for name in group.in_order()),
        left_out=left_out,
        environment=results.head.environment if results.head else None,
        flags=(results.head and results.head.flags) or {},
        properties=(results.head and results.head.properties) or {},
        unreadable=[(report.member, report.reason) for report in results.unreadable[:UNREADABLE_MOST]],
        groups=groups,
    )


def _group(place: SourcePlace, group: Group, names: list[str], exceptional: list[Exceptional]) -> MergedGroup:
    codes = bytearray(PASSED * len(names))
    for position, attempts in group.attempts.items():
        codes[position] = code_of(attempts[-1].outcome, len(attempts), flaky=is_flaky(attempts))
    return MergedGroup(
        file=place.file,
        suite=place.suite,
        invoking_file=place.invoking_file,
        digests=b"".join(digest(place.file, place.suite, name) for name in names),
        codes=bytes(codes),
        times=group.times.tobytes(),  # -1 is 2**32 - 1 there
        exceptional=exceptional,
        names=msgspec.Raw(msgspec.msgpack.encode(names)),
        declared=group.declared,
    )


def _says_more(attempts: Sequence[Attempt]) -> bool:
    final = attempts[-1]
    if final.outcome in QUIET and len(attempts) == 1:
        return final.outcome is Outcome.SKIPPED and final.message.startswith(RERUN_NOTE)
    return attempts is not JUST_PASSED and any(attempt.outcome in FAILING for attempt in attempts)


def _exceptional(position: int, attempts: Sequence[Attempt], properties: dict[str, str]) -> Exceptional:
    said = next(
        (attempt for attempt in reversed(attempts) if attempt.message or attempt.stack or attempt.output),
        attempts[-1],
    )
    return Exceptional(
        position=position,
        flaky=is_flaky(attempts),
        attempts=len(attempts),
        failed_attempts=sum(attempt.outcome in FAILING for attempt in attempts),
        type=_text(said.type),
        message=_text(said.message),
        stack=_text(said.stack),
        output=_text(said.output),
        line=next((attempt.line for attempt in reversed(attempts) if attempt.line), None),
        properties=properties,
    )


def _read_exclusions(member: Member) -> _ExclusionsDocument:
    content = b""
    for piece in member.pieces():
        content += piece
        if len(content) > BYTES_MOST:
            raise Refused(f"{member.name[:100]}: over {BYTES_MOST >> 20} MiB")
    try:
        return _DECODER.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"{member.name[:100]}: {error}"[:300]) from None
