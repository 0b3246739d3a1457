"""Files beside the report: reports of tests and a usage log, uploaded to the bot, which reads them.

The files were written by a job that ran a pull request's code. Nothing here opens them: they are packed and sent.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import urllib.parse
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sending import DeliveryError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from sending import Sender

CALLBACK, UPLOADS = "/api/oot/callback", "/api/oot/uploads"
TOKEN_HEADER = "X-OOT-Callback-Token"  # noqa: S105 - a header's name
MOST_BYTES = 64 * 1024 * 1024  # of one upload; the bot refuses more
MOST_FILES = 10_000  # of one archive, for the same reason
SELF_TRIGGERED = ("nightly", "periodic")  # event types of runs that were not dispatched
REPORTS = {".xml", ".jsonl", ".zip"}


@dataclass(frozen=True)
class Upload:
    """A file to be sent: what it is, what to call it, and where it lies."""

    kind: str
    name: str
    path: Path


def send_all(
    options: argparse.Namespace, report: dict[str, Any], sender: Sender, warn: Callable[[str], None]
) -> int:
    """Upload what the inputs name and return how many files were taken.

    Whatever cannot be sent is a warning: the report, which matters more, has arrived.
    """
    sent = 0
    with tempfile.TemporaryDirectory() as folder:
        for upload in _wanted(options, Path(folder), warn):
            try:
                sender.send(upload.path, _address(sender.url, report, upload), _headers(report))
                sent += 1
            except (DeliveryError, OSError) as error:
                warn(f"{upload.name} was not uploaded: {error}")
    return sent


def describe(options: argparse.Namespace, note: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Say what would be uploaded, and warn of what cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        for upload in _wanted(options, Path(folder), warn):
            note(f"with the file {upload.name} ({upload.kind}), {upload.path.stat().st_size:,} bytes")


def _wanted(options: argparse.Namespace, folder: Path, warn: Callable[[str], None]) -> Iterator[Upload]:
    """Yield the uploads: an archive of all reports, each archive of them, and the usage log."""
    if options.test_reports:
        found = _matching(options.test_reports)
        if not found:
            warn(f"no test report was uploaded: no .xml, .jsonl or .zip file matches {options.test_reports}")
        yield from _packed([path for path in found if path.suffix.lower() != ".zip"], folder, warn)
        for path in found:
            if path.suffix.lower() == ".zip":
                yield from _fitting(Upload("junit", path.name, path), warn)
    if options.usage_log:
        path = Path(options.usage_log)
        if path.is_file() and not path.is_symlink():
            yield from _fitting(Upload("usage", path.name, path), warn)
        else:
            warn(f"no usage log was uploaded: {options.usage_log} is not a file")


def _matching(pattern: str) -> list[Path]:
    """Return the reports that a path or glob names; no symbolic link leads out of where it begins."""
    fixed = Path(re.split(r"[*?\[]", pattern, maxsplit=1)[0])
    start = os.path.realpath(fixed if fixed.is_dir() else fixed.parent)
    paths = [Path(name) for name in glob.glob(pattern, recursive=True)]  # noqa: PTH207 - a Path takes no absolute pattern
    return sorted(
        path
        for path in paths
        if path.suffix.lower() in REPORTS
        and path.is_file()
        and os.path.commonpath([start, os.path.realpath(path)]) == start
    )


def _packed(paths: list[Path], folder: Path, warn: Callable[[str], None]) -> Iterator[Upload]:
    """Yield one archive of all files, so that the bot reads them together."""
    if len(paths) > MOST_FILES:
        warn(f"{len(paths):,} test reports match: the first {MOST_FILES:,} are uploaded")
    if paths:
        target = folder / "test-reports.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for path in paths[:MOST_FILES]:
                archive.write(path, _member(path))
        kind = "junit" if any(path.suffix.lower() == ".xml" for path in paths) else "runreport"
        yield from _fitting(Upload(kind, target.name, target), warn)


def _member(path: Path) -> str:
    """Return a file's name in the archive: its path here, whose folders say which file launched the tests."""
    parts = [part for part in path.parts if part not in ("..", path.anchor)]
    return "/".join(parts).encode("utf-8", "replace").decode()


def _fitting(upload: Upload, warn: Callable[[str], None]) -> Iterator[Upload]:
    """Yield the upload unless the bot would refuse its size."""
    size = upload.path.stat().st_size
    if size > MOST_BYTES:
        warn(f"{upload.name} was not uploaded: {size / 2**20:,.0f} MiB, the most is {MOST_BYTES >> 20} MiB")
    elif size:
        yield upload


def _address(callback: str, report: dict[str, Any], upload: Upload) -> str:
    """Return where to send a file: beside the callback, saying which job it is of; the job is the report's."""
    parts = urllib.parse.urlsplit(callback)
    path = parts.path.rstrip("/")
    if not path.endswith(CALLBACK):
        raise DeliveryError(f"{callback} does not end in {CALLBACK}, so the address for files is unknown")
    workflow = report["workflow"]
    query = {
        "kind": upload.kind,
        "delivery_id": report["delivery_id"],
        "run_id": workflow["run_id"],
        "run_attempt": workflow["run_attempt"],
        "workflow": workflow["name"],
        "job": workflow["job_name"],
        "name": upload.name,
    }
    if report.get("event_type") in SELF_TRIGGERED:
        query["event_type"] = report["event_type"]
    path = path[: -len(CALLBACK)] + UPLOADS
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, urllib.parse.urlencode(query), ""))


def _headers(report: dict[str, Any]) -> dict[str, str]:
    token = report.get("callback_token")
    fits = isinstance(token, str) and token.isascii() and token.isprintable()
    return {TOKEN_HEADER: str(token)} if token and fits else {}
