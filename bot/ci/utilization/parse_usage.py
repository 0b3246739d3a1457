"""What is read from a usage log, in the parser child: it is found in its archive, read, measured and compressed."""

from __future__ import annotations

import hashlib
import io
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.ci.collect.parse import zip_members
from bot.ci.collect.parse.contract import Broken
from bot.ci.utilization import blob, measures, overlap, segments, summary, usage_log
from bot.ci.utilization.histogram import encoded, packed
from bot.ci.utilization.metadata import NotReadable, metadata_of
from bot.ci.utilization.parsed import METRICS, SEGMENTS_MOST, ParsedUsage, PeakFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.collect.parse.contract import Given
    from bot.ci.collect.parse.zip_members import Archive, Member
    from bot.ci.utilization.segments import Segment
    from bot.ci.utilization.usage_log import UsageLog

NAME = "usage_log.txt"
SUFFIXES = (".jsonl", ".txt")
CANDIDATES = 200  # members whose first line is looked at
COMMANDS_SHOWN = 500  # of which the times alone and beside others are kept
PEAK_COMMANDS = 20


def parse(given: Given) -> ParsedUsage:
    """Store the series beside the answer, and return what they come to."""
    if not zip_members.is_archive(given.path):
        with given.path.open("rb") as file:
            return _kept(usage_log.read(file), given)
    with zip_members.open_archive(given.path) as archive:
        member = _member(archive)
        if member is None:
            return ParsedUsage(status="absent", reason="the artifact holds no usage log")
        with opened(member) as file:
            return _kept(usage_log.read(file), given)


def opened(member: Member) -> IO[bytes]:
    """Return a member as a file."""
    return io.BufferedReader(_Pieces(member.pieces()), zip_members.PIECE)


class _Pieces(io.RawIOBase):
    """Pieces of bytes, read as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        self._left = self._left or next(self._pieces, b"")
        part, self._left = self._left[: len(into)], self._left[len(into) :]
        into[: len(part)] = part
        return len(part)


def _member(archive: Archive) -> Member | None:
    """Return the member that is the log: the one of that name, else the only one that begins like one."""
    members = list(zip_members.readable_members(archive))
    for one in members:
        if one.name.rpartition("/")[2] == NAME:
            return one
    candidates = [one for one in members if one.name.casefold().endswith(SUFFIXES)]
    found = [one for one in candidates[:CANDIDATES] if _begins_as_log(one)]
    return found[0] if len(found) == 1 else None


def _begins_as_log(member: Member) -> bool:
    try:
        with opened(member) as file:
            metadata_of(next(usage_log.decoded(file, set()), None))
    except (NotReadable, Broken):  # of a large archive, only the bytes of the named member were fetched
        return False
    return True


def _kept(log: UsageLog, given: Given) -> ParsedUsage:
    """Return what a log comes to; one with records leaves its series as a blob."""
    common = _common(log)
    if log.status != "ok":
        return ParsedUsage(**common)
    pieces = segments.segments(log)
    chosen = _longest(pieces)
    if len(chosen) < len(pieces):
        common["flags"] = sorted({*log.flags, "segments_left_out"})
    times, most = summary.times(log), summary.peak(log)
    together = overlap.overlap(log, pieces)
    details = {
        "pairs": msgspec.to_builtins(together.pairs),
        "most_at_once": together.most_at_once,
        "usages": msgspec.to_builtins(_used_most(together.commands)),
        "summaries": msgspec.to_builtins(summary.summaries(log, ends="|max")),
    }
    series = blob.encode(log, details)
    given.blob.write_bytes(series)
    measured = measures.of(log)
    return ParsedUsage(
        **common,
        first_at=log.timestamps[0],
        digest=hashlib.sha256(series).hexdigest(),
        measures={name: one.measure for name, one in measured.items() if one.measure},
        peak=_peak(most) if most else None,
        observed_s=times.observed_s,
        no_data_s=times.no_data_s,
        saturated_s=times.saturated_s,
        idle_gpu_s=times.idle_gpu_s,
        gpu_s=times.gpu_s,
        segments=[(one.name, one.start_at, one.end_at) for one in chosen],
        histograms=encoded(packed([measured[name].histogram for name in METRICS]), len(METRICS)),
        totals=[measured[name].histogram.total for name in METRICS],
    )


def _common(log: UsageLog) -> dict[str, Any]:
    said = log.metadata
    return {
        "status": log.status,
        "reason": log.reason,
        "flags": log.flags,
        "workflow_id": said.workflow_id if said else "",
        "job_id": said.job_id if said else "",
        "collect_interval": said.usage_collect_interval if said else None,
        "model_version": f"{said.data_model_version:g}" if said else None,
        "gpu_count": said.gpu_count if said else None,
        "cpu_count": said.cpu_count if said else None,
        "gpu_type": said.gpu_type if said else None,
        "start_at": log.start_at,
        "end_at": log.end_at,
        "records": log.records,
        "error_records": log.error_records,
    }


def _peak(most: summary.Peak) -> PeakFound:
    return PeakFound(at=most.at, percent=most.percent, commands=most.commands[:PEAK_COMMANDS])


def _longest(pieces: list[Segment]) -> list[Segment]:
    """Return the segments that are kept, in their order."""
    if len(pieces) <= SEGMENTS_MOST:
        return pieces
    chosen = sorted(range(len(pieces)), key=lambda at: -pieces[at].length)[:SEGMENTS_MOST]
    return [pieces[at] for at in sorted(chosen)]


def _used_most(commands: list[overlap.Usage]) -> list[overlap.Usage]:
    """Return the commands that ran longest."""
    return sorted(commands, key=lambda one: -(one.alone_s + one.shared_s))[:COMMANDS_SHOWN]
