"""What is read from a usage log, in the parser child: it is found in its archive, read, measured and compressed."""

from __future__ import annotations

import hashlib
import io
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.ci.collect.parse import zip_members
from bot.ci.collect.parse.contract import Broken
from bot.ci.utilization.parse import blob, measures, overlap, segments, summary, usage_log
from bot.ci.utilization.parse.histogram import METRICS, encoded, packed
from bot.ci.utilization.parse.metadata import NotReadable, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.collect.parse.contract import Given
    from bot.ci.collect.parse.zip_members import Archive, Member
    from bot.ci.utilization.parse.segments import Segment
    from bot.ci.utilization.parse.usage_log import UsageLog
    from bot.ci.utilization.store_usage import ParsedLog
    from bot.ci.utilization.tables import LogRow, Peak

NAME = "usage_log.txt"
SUFFIXES = (".jsonl", ".txt")
CANDIDATES = 200  # members whose first line is looked at
COMMANDS_SHOWN = 500  # of which the times alone and beside others are kept
PEAK_COMMANDS = 20
SEGMENTS_MOST = 2_000


def parse_log(given: Given) -> ParsedLog:
    """Store the series beside the answer, and return what they come to; raises Broken without a usage log."""
    if not zip_members.is_archive(given.path):
        with given.path.open("rb") as file:
            return _keep(usage_log.read_log(file), given)
    with zip_members.open_archive(given.path) as archive:
        member = _member(archive)
        if member is None:
            raise Broken("it holds no usage log")
        with _open_member(member) as file:
            return _keep(usage_log.read_log(file), given)


def _open_member(member: Member) -> IO[bytes]:
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
        with _open_member(member) as file:
            metadata_of(next(usage_log.decoded(file, set()), None))
    except (NotReadable, Broken):  # of a large archive, only the bytes of the named member were fetched
        return False
    return True


def _keep(log: UsageLog, given: Given) -> ParsedLog:
    """Return what a log comes to; one with records leaves its series as a blob."""
    pieces = segments.find_segments(log) if log.charted else []
    chosen = _longest(pieces)
    outcome = log.outcome
    if len(chosen) < len(pieces):
        outcome = {**outcome, "flags": sorted([*outcome["flags"], "segments_left_out"])}
    series = blob.encode(log, _details(log, pieces)) if log.charted else b""
    if series:
        given.blob.write_bytes(series)
    said, measured, peak = log.metadata, measures.measure_log(log), summary.peak(log)
    row: LogRow = {
        **outcome,
        "digest": hashlib.sha256(series).hexdigest() if series else "",
        "collect_interval": said.usage_collect_interval if said else None,
        "model_version": f"{said.data_model_version:g}" if said else None,
        "gpu_count": said.gpu_count if said else None,
        "cpu_count": said.cpu_count if said else None,
        "gpu_type": said.gpu_type if said else None,
        **log.extent,
        **measures.as_columns(measured),
        **summary.times(log).durations,
        "oom_risk": bool(peak and peak.oom_risk),
        "peak": _shown_peak(peak) if peak else None,
        "segments": [(one.name, one.start_at, one.end_at) for one in chosen],
        "histograms": encoded(packed([measured[name].histogram for name in METRICS]), len(METRICS)),
        "totals": [measured[name].histogram.total for name in METRICS],
    }
    claims = (said.workflow_id, said.job_id) if said else ("", "")
    return {"row": row, "claims": claims, "first_at": log.timestamps[0] if log.charted else None}


def _details(log: UsageLog, pieces: list[Segment]) -> dict[str, Any]:
    """Return what is kept of a log beside its series."""
    together = overlap.find_overlap(log, pieces)
    return {
        "pairs": msgspec.to_builtins(together.pairs),
        "most_at_once": together.most_at_once,
        "usages": msgspec.to_builtins(_used_most(together.commands)),
        "summaries": msgspec.to_builtins(summary.summaries(log, ends="|max")),
    }


def _shown_peak(peak: summary.Peak) -> Peak:
    return {"at": peak.at, "percent": peak.percent, "commands": peak.commands[:PEAK_COMMANDS]}


def _longest(pieces: list[Segment]) -> list[Segment]:
    """Return the segments that are kept, in their order."""
    if len(pieces) <= SEGMENTS_MOST:
        return pieces
    chosen = sorted(range(len(pieces)), key=lambda at: -pieces[at].length)[:SEGMENTS_MOST]
    return [pieces[at] for at in sorted(chosen)]


def _used_most(commands: list[overlap.Usage]) -> list[overlap.Usage]:
    """Return the commands that ran longest."""
    return sorted(commands, key=lambda one: -(one.alone_s + one.shared_s))[:COMMANDS_SHOWN]
