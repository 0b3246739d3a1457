"""Where a job's tests ran: by its run report, else by the operator's table, else by words in the job's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import re2

from bot.core.settings import option
from bot.evidence.tests.parse.block import Environment
from bot.evidence.tests.parse.texts import DEVICES

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.evidence.tests.tables import EnvRow
    from bot.jobs.job_names import JobName

JobEnv = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # pattern, and fields with their values
FIELDS = ("os", "arch", "accelerator", "accelerator_version", "device_name", "python")
LONGEST = 200  # characters of a field
DEVICES_MOST = 100_000
SYSTEMS = (
    ("linux", ("linux", "ubuntu", "focal", "jammy", "noble", "manylinux", "centos", "debian", "alpine")),
    ("windows", ("windows", "win", "win64", "vs2019", "vs2022")),
    ("macos", ("macos", "mac", "osx", "darwin")),
)
ACCELERATORS = DEVICES - {"meta", "privateuse1", "cpu"}
_WORD = re.compile(r"[a-z]+|[0-9]+(?:\.[0-9]+)*")
_PYTHON = re.compile(r"(?<![a-z])py(?:thon)?[ -]?(3\.\d{1,2})(?!\d)")


def parse_table(text: str) -> JobEnv:
    """Read the setting, a JSON object that maps patterns to objects of fields; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table of patterns, as in {{"gfx9": {{"accelerator": "rocm"}}}}: {error}'
        ) from None
    for pattern, fields in given.items():
        if unknown := fields.keys() - set(FIELDS):
            known = ", ".join(FIELDS)
            raise ValueError(f"{', '.join(sorted(unknown))} is no field of an environment: known are {known}")
        try:
            _compiled(pattern)
        except re2.error as error:
            raise ValueError(f"{pattern!r} is no regular expression of RE2: {error}") from None
    return tuple((pattern, tuple(fields.items())) for pattern, fields in given.items())


def as_text(table: JobEnv) -> str:
    """Return the table as the setting is written."""
    return msgspec.json.encode({pattern: dict(fields) for pattern, fields in table}).decode()


def environment_of_job(
    reported: Environment | None, name: JobName, *, table: JobEnv = (), devices: Collection[str] = ()
) -> EnvRow:
    """Return the environment of a job; its run report takes precedence."""
    said = reported or Environment()
    by_name = _by_words(name.full, devices) | _by_table(name.full, table)
    fields = {
        "os": said.os.lower(),
        "arch": said.cpu_architecture,
        "accelerator": said.accelerator.lower(),
        "accelerator_version": said.accelerator_version,
        "device_name": said.device_name,
        "python": said.python_version,
    }
    for field, value in by_name.items():
        fields[field] = fields.get(field) or value
    fields = {field: value.replace("\0", "")[:LONGEST] for field, value in fields.items()}
    group = " ".join(word for word in (fields["os"], fields["accelerator"], name.config) if word)
    return {
        "os": fields["os"],
        "arch": fields["arch"],
        "accelerator": fields["accelerator"],
        "accelerator_version": fields["accelerator_version"],
        "device_name": fields["device_name"],
        "device_count": min(max(said.device_count, 0), DEVICES_MOST),
        "python": fields["python"],
        "build": name.base_name,
        "config": name.config,
        "env_group": group,
    }


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """How test results are read."""

    job_env: JobEnv = option(  # noqa: RUF009 - a field, as the others
        "Where the tests of a job ran, where their reports do not say: a table from a regular expression over the "
        'job\'s name to what it means, {"gfx9": {"accelerator": "rocm"}}; the first that names a field decides.',
        parse_table,
        default=(),
        show=as_text,
    )


def _by_table(name: str, table: JobEnv) -> dict[str, str]:
    named: dict[str, str] = {}
    for pattern, fields in table:
        if _compiled(pattern).search(name):
            named = dict(fields) | named
    return named


def _by_words(name: str, devices: Collection[str]) -> dict[str, str]:
    """Read the environment from the words of a job's name."""
    lowered = name.lower()
    words = _WORD.findall(lowered)
    fields = {}
    for system, names in SYSTEMS:
        if any(word in names for word in words):
            fields["os"] = system
            break
    known = ACCELERATORS | {device.lower() for device in devices}
    accelerator = next((word for word in words if word in known), "cpu" if "cpu" in words else "")
    if accelerator:
        fields["accelerator"] = accelerator
    if python := _PYTHON.search(lowered):
        fields["python"] = python[1]
    return fields


def _compiled(pattern: str) -> re2._Regexp[str]:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    return re2.compile(pattern, options)
