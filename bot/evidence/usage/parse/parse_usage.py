"""What the parser child does with a usage log: find it in its archive, read, measure and compress it."""

from __future__ import annotations

import hashlib
import io
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.evidence.collect.parse import archives
from bot.evidence.collect.parse.contract import Broken
from bot.evidence.usage.parse import columns, segments, summary, usage_log
from bot.evidence.usage.parse.summary import METRICS, encode_bins, pack_histograms
from bot.evidence.usage.parse.usage_log import NotReadable, metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.evidence.collect.parse.archives import Archive, Member
    from bot.evidence.collect.parse.contract import ParserInput
    from bot.evidence.usage.parse.segments import Segment
    from bot.evidence.usage.parse.usage_log import UsageLog
    from bot.evidence.usage.store_usage import ParsedUsage
    from bot.evidence.usage.tables import LogRow, Peak

NAME = "usage_log.txt"
SUFFIXES = (".jsonl", ".txt")
CANDIDATES = 200  # members whose first line is looked at
COMMANDS_SHOWN = 500  # of which the times alone and beside others are kept
PEAK_COMMANDS = 20
SEGMENTS_MOST = 2_000


def parse_log(given: ParserInput) -> ParsedUsage:
    """Store the series beside the answer, and return their summary; raise Broken without a usage log."""
    if not archives.is_archive(given.path):
        with given.path.open("rb") as file:
            return _keep(usage_log.read_log(file), given)
    with archives.open_archive(given.path) as archive:
        member = _member(archive)
        if member is None:
            raise Broken("it holds no usage log")
        with _open_member(member) as file:
            return _keep(usage_log.read_log(file), given)


def _open_member(member: Member) -> IO[bytes]:
    """Return a member as a file."""
    return io.BufferedReader(_Pieces(member.pieces()), archives.PIECE)


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
    """Return the member that is the log: by its name, else the only one that begins like a log."""
    members = list(archives.readable_members(archive))
    for member in members:
        if member.name.rpartition("/")[2] == NAME:
            return member
    candidates = [member for member in members if member.name.casefold().endswith(SUFFIXES)]
    logs = [member for member in candidates[:CANDIDATES] if _begins_as_log(member)]
    return logs[0] if len(logs) == 1 else None


def _begins_as_log(member: Member) -> bool:
    try:
        with _open_member(member) as file:
            metadata_of(next(usage_log.decode_lines(file, set()), None))
    except (NotReadable, Broken):  # of a large archive, only the bytes of the named member were fetched
        return False
    return True


def _keep(log: UsageLog, given: ParserInput) -> ParsedUsage:
    """Summarize a log, and store its series as a blob if it has records."""
    pieces = segments.find_segments(log) if log.charted else []
    chosen = _longest(pieces)
    outcome = log.outcome
    if len(chosen) < len(pieces):
        outcome = {**outcome, "flags": sorted([*outcome["flags"], "segments_left_out"])}
    series = columns.encode_usage(log, _details(log, pieces)) if log.charted else b""
    if series:
        given.blob.write_bytes(series)
    said, measured, peak = log.metadata, summary.measure_log(log), summary.find_peak(log)
    row: LogRow = {
        **outcome,
        "digest": hashlib.sha256(series).hexdigest() if series else "",
        "collect_interval": said.usage_collect_interval if said else None,
        "model_version": f"{said.data_model_version:g}" if said else None,
        "gpu_count": said.gpu_count if said else None,
        "cpu_count": said.cpu_count if said else None,
        "gpu_type": said.gpu_type if said else None,
        **log.extent,
        **summary.as_columns(measured),
        **summary.measure_times(log).durations,
        "oom_risk": bool(peak and peak.oom_risk),
        "peak": _shown_peak(peak) if peak else None,
        "segments": [(segment.name, segment.start_at, segment.end_at) for segment in chosen],
        "histograms": encode_bins(
            pack_histograms([measured[name].histogram for name in METRICS]), len(METRICS)
        ),
        "totals": [measured[name].histogram.total for name in METRICS],
    }
    claims = (said.workflow_id, said.job_id) if said else ("", "")
    return {"row": row, "claims": claims, "first_at": log.timestamps[0] if log.charted else None}


def _details(log: UsageLog, pieces: list[Segment]) -> dict[str, Any]:
    """Return what is kept of a log beside its series."""
    together = segments.find_overlap(log, pieces)
    return {
        "pairs": msgspec.to_builtins(together.pairs),
        "most_at_once": together.most_at_once,
        "usages": msgspec.to_builtins(_used_most(together.commands)),
        "summaries": msgspec.to_builtins(summary.summarize_log(log, ends="|max")),
    }


def _shown_peak(peak: summary.MemoryPeak) -> Peak:
    return {"at": peak.at, "percent": peak.percent, "commands": peak.commands[:PEAK_COMMANDS]}


def _longest(pieces: list[Segment]) -> list[Segment]:
    """Return the segments that are kept, in their order."""
    if len(pieces) <= SEGMENTS_MOST:
        return pieces
    chosen = sorted(range(len(pieces)), key=lambda at: -pieces[at].length)[:SEGMENTS_MOST]
    return [pieces[at] for at in sorted(chosen)]


def _used_most(commands: list[segments.CommandUsage]) -> list[segments.CommandUsage]:
    """Return the commands that ran longest."""
    return sorted(commands, key=lambda command: -(command.alone_s + command.shared_s))[:COMMANDS_SHOWN]
