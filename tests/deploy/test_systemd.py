"""Is the systemd unit one, and is it hardened? `systemd-analyze` says so where it is at hand."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from bot.worker import GRACE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(path.name for path in FOLDER.iterdir())
MOST_EXPOSED = 2.0  # of 10, as `systemd-analyze security` counts

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(FOLDER / name)
    return parser


def installed(folder: Path) -> list[str]:
    """The units as they would be installed, with programs that exist here."""
    made = []
    for name in UNITS:
        text = (FOLDER / name).read_text().replace("/opt/ootbot/.venv/bin/ootbot", "/bin/true")
        (folder / name).write_text(text)
        made.append(str(folder / name))
    return made


@needs_systemd
def test_systemd_finds_nothing_wrong(tmp_path):
    done = subprocess.run(
        ["systemd-analyze", "verify", *installed(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_calls_it_little_exposed(tmp_path):
    installed(tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(tmp_path / "ootbot.service")],
        capture_output=True, text=True, check=False, env={"SYSTEMD_COLORS": "0", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    level = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    if level is None:
        pytest.skip("this systemd-analyze cannot look at files")
    assert float(level[1]) <= MOST_EXPOSED


def test_it_is_not_root_starts_again_and_may_finish_its_work():
    service = unit("ootbot.service")["Service"]
    assert service["User"] == "ootbot"
    assert service["Restart"] == "always"
    assert int(service["TimeoutStopSec"]) > GRACE + 5
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ExecStart"].endswith("ootbot serve")


def test_the_process_may_see_what_its_own_metrics_are_made_of(tmp_path):
    """prometheus-client reads /proc/stat once, and has none of process_* without it."""
    assert unit("ootbot.service")["Service"].get("ProcSubset", "all") == "all"
    assert list(ProcessCollector(registry=None).collect())
    assert not list(ProcessCollector(proc=str(tmp_path), registry=None).collect())


def calls(name: str) -> set[str]:
    """The system calls of a set of systemd's, or the one of that name."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    words = {line.strip() for line in done.stdout.splitlines()[1:] if not line.strip().startswith("#")}
    return {call for word in words - {""} for call in calls(word)}


@needs_systemd
def test_the_parser_child_may_lower_its_priority():
    """Processes that use a call which is not allowed are killed: files could not be read at all."""
    allowed: set[str] = set()
    for line in (FOLDER / "ootbot.service").read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "SystemCallFilter":
            named = {call for word in value.removeprefix("~").split() for call in calls(word)}
            allowed = allowed - named if value.startswith("~") else allowed | named
    assert {"setpriority", "prlimit64"} <= allowed
    assert not {"reboot", "sched_setaffinity", "setuid"} & allowed


def test_the_backup_runs_as_the_same_user_every_night():
    service, timer = unit("ootbot-backup.service")["Service"], unit("ootbot-backup.timer")["Timer"]
    assert service["User"] == unit("ootbot.service")["Service"]["User"]
    assert "ootbot backup" in service["ExecStart"]
    assert timer["Persistent"] == "true"


def test_a_second_backup_on_a_day_does_not_meet_the_first(tmp_path):
    """A night that was missed is made up for by day; `ootbot backup` replaces nothing."""
    line = unit("ootbot-backup.service")["Service"]["ExecStart"].replace("%%", "%")
    command = shlex.split(line.replace("/opt/ootbot/.venv/bin/ootbot", "echo"))
    clock = tmp_path / "date"
    clock.write_text('#!/bin/sh\nexec /bin/date --date="@$NOW" "$@"\n')
    clock.chmod(0o755)
    names = []
    for now in ("1700000000", "1700003600"):
        environ = {"STATE_DIRECTORY": "/copies", "NOW": now, "PATH": f"{tmp_path}:/usr/bin:/bin", "TZ": "UTC"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        names.append(done.stdout.strip())
    assert names == ["backup /copies/ootbot-2023-11-14T221320", "backup /copies/ootbot-2023-11-14T231320"]
