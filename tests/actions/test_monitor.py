"""Does the monitor write a log that is read, whatever accelerator there is, and however it is ended?"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bot.console.evidence import utilization

ACTION = Path(__file__).parents[2] / "actions" / "monitor"
FAST = ("--interval", "0.1", "--log-interval", "0.3", "--device-interval", "0.1")
NVIDIA = """#!/bin/sh
while true; do
  echo "0, GPU-a, 41, 7, 1000, 4000"
  echo "1, GPU-b, 0, [N/A], 0, 4000"
  sleep 0.1
done
"""
NPU = """#!/bin/sh
cat <<'END'
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.6        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 37          0    / 0          3162 / 65536         |
+===========================+===============+====================================================+
END
"""
ROCM = """#!/bin/sh
echo '{"card0": {"Unique ID": "0xab", "GPU use (%)": "12", "VRAM Total Memory (B)": "4194304", "VRAM Total Used Memory (B)": "1048576"}, "system": {"Driver version": "6"}}'
"""
AMD = """#!/bin/sh
echo '[{"gpu": 0, "usage": {"gfx_activity": {"value": 12, "unit": "%"}, "umc_activity": 3}, "mem_usage": {"total_vram": {"value": 4, "unit": "MB"}, "used_vram": {"value": 1, "unit": "MB"}}}]'
"""
CSV_OF_XPU = """#!/bin/sh
echo "Timestamp, DeviceId, GPU Utilization (%), A, B, C"
while true; do echo "10:00:00.000, 0, 12.00, 3.00, 25.00, 1.00"; sleep 0.1; done
"""
CSV_OF_HL = """#!/bin/sh
while true; do echo "0, 01P0-A, 12 %, 1 MiB, 4 MiB"; sleep 0.1; done
"""


@pytest.fixture
def tool(tmp_path):
    """Put a vendor's tool on the PATH."""

    def make(name, text):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def monitored(tmp_path):
    """Run the monitor until its log has two records; returns the log's lines."""

    def run(*options, records=2):
        log = tmp_path / "usage_log.txt"
        command = [sys.executable, "-E", "-s", str(ACTION / "monitor.py"), "--log", str(log), *FAST, *options]
        environ = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "GITHUB_RUN_ID": "991"}
        process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            if log.exists() and log.read_bytes().count(b"\n") > records:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")
        return [json.loads(line) for line in log.read_text().splitlines()]

    return run


def test_the_log_is_read_by_the_bot(monitored, tmp_path):
    token = "ghp_" + "a" * 36
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", token])
    try:
        about, *records = monitored("--device", "none", "--job-id", "77", "--job-name", "test (npu)")
    finally:
        child.kill()
        child.wait()
    assert (about["workflow_id"], about["job_id"], about["job_name"]) == ("991", "77", "test (npu)")
    assert (about["gpu_count"], about["gpu_type"], about["data_model_version"]) == (None, "", 1.5)
    done = CliRunner().invoke(utilization, ["read", str(tmp_path / "usage_log.txt"), "--json"])
    found = json.loads(done.stdout)
    assert (found["status"], found["records"], found["flags"]) == ("ok", len(records), [])
    assert found["series"] == ["cpu|avg", "cpu|max", "memory|avg", "memory|max"]
    names = [one["name"] for one in found["segments"]]
    assert any(name.endswith("-c import time; time.sleep(60) ***") for name in names)
    assert not any("monitor/monitor.py" in name for name in names)


@pytest.mark.parametrize(
    ("name", "text", "uuid", "used"),
    [
        ("npu-smi", NPU, "0000:C1:00.0", 37),
        ("rocm-smi", ROCM, "0xab", 12),
        ("amd-smi", AMD, "0", 12),
        ("xpu-smi", CSV_OF_XPU, None, 12),
        ("hl-smi", CSV_OF_HL, "01P0-A", 12),
    ],
)
def test_every_vendor_with_a_tool(monitored, tool, name, text, uuid, used):
    tool(name, text)
    about, *_, last = monitored("--device", name)
    assert (about["gpu_type"], about["gpu_count"]) == (name, 1)
    (usage,) = last["data"]["gpu_usage"]
    assert (usage["uuid"], usage["util_percent"]["max"]) == (uuid, used)
    assert usage["allocated_mem_percent"]["max"] == (4.82 if name == "npu-smi" else 25)


def test_a_tool_with_a_loop_mode_is_started_once(monitored, tool):
    tool("nvidia-smi", NVIDIA)
    *_, last = monitored(records=3)
    first, second = last["data"]["gpu_usage"]
    assert first == {
        "uuid": "GPU-a",
        "util_percent": {"avg": 41, "max": 41, "raw": None},
        "mem_util_percent": {"avg": 7, "max": 7, "raw": None},
        "allocated_mem_percent": {"avg": 25, "max": 25, "raw": None},
        "allocated_mem_value": {"avg": 1000, "max": 1000, "raw": None},
        "total_mem_value": 4000,
    }
    assert (second["uuid"], second["mem_util_percent"]) == ("GPU-b", None)


def test_any_other_accelerator_by_command_and_map(monitored, tool, tmp_path):
    answer = {"chips": [{"sn": 5, "load": {"core": "45.5 %"}, "mem": [1048576, 2097152]}]}
    path = tool("my-smi", f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    where = {"devices": "chips", "uuid": "sn", "util_percent": ["none", "load.core"], "allocated_mem_value": "mem.0",
             "total_mem_value": "mem.1", "value_unit": "B"}  # fmt: skip
    (tmp_path / "map.json").write_text(json.dumps(where))
    about, *_, last = monitored(
        "--device-command", f"{path} --json", "--device-map", str(tmp_path / "map.json")
    )
    (usage,) = last["data"]["gpu_usage"]
    assert about["gpu_type"] == "my-smi"
    assert (usage["uuid"], usage["util_percent"]["max"], usage["total_mem_value"]) == ("5", 45.5, 2)
    assert usage["allocated_mem_percent"]["max"] == 50


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho '[['\n"])
def test_a_tool_that_fails_costs_only_its_own_numbers(monitored, tool, text):
    tool("amd-smi", text)
    _, *records = monitored("--device", "amd-smi")
    assert all(one["data"]["gpu_usage"] is None and one["error"] is None for one in records)
    assert any("amd-smi: " in line for one in records for line in one["logs"])


def test_percents_are_of_what_the_container_may_use(monitored, tmp_path):
    group = tmp_path / "root/sys/fs/cgroup/jobs/one"
    group.mkdir(parents=True)
    proc = tmp_path / "root/proc"
    (proc / "self").mkdir(parents=True)
    (proc / "stat").write_text("cpu  1 1 1 1 1 1 1 1\n")
    (proc / "self/cgroup").write_text("0::/jobs/one\n")
    (group / "memory.max").write_text("max\n")
    (group / "cpu.max").write_text("50000 100000\n")
    (group / "cpu.stat").write_text("usage_usec 100\n")
    (group.parent / "memory.max").write_text("1000\n")
    (group.parent / "memory.current").write_text("700\n")
    (group.parent / "memory.stat").write_text("anon 1\ninactive_file 200\n")
    about, *_, last = monitored("--root", str(tmp_path / "root"), "--device", "none")
    assert (about["memory_basis"], about["cpu_basis"]) == ("cgroup", "cgroup")
    assert last["data"]["memory"]["max"] == 50
    assert last["data"]["cpu"]["max"] == 0


def run(*options):
    command = [sys.executable, str(ACTION / "monitor.py"), *FAST, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_full_disk_ends_it_quietly():
    done = run("--log", "/dev/full", "--device", "none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No space left" in done.stderr


@pytest.mark.parametrize(
    "where", ["{}", "[", '{"utl": "a"}', '{"uuid": 1}', '{"uuid": "a", "value_unit": "MB"}']
)
def test_a_wrong_map_is_named(tmp_path, where):
    (tmp_path / "map.json").write_text(where)
    done = run(
        "--log", str(tmp_path / "l"), "--device-command", "x", "--device-map", str(tmp_path / "map.json")
    )
    assert done.returncode == 2
    assert "map.json: " in done.stderr


def test_the_action_starts_and_stops_it(tmp_path):
    """As a runner does: two steps, inputs in the environment."""
    environ = os.environ | {
        "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_ACTION_PATH": str(ACTION),
        "INPUT_INTERVAL": "0.1", "INPUT_DEVICE": "none", "INPUT_LOG": "",
    }  # fmt: skip
    log = tmp_path / "usage_log.txt"
    action = tmp_path / "action"  # as a checkout with other line ends leaves it
    shutil.copytree(ACTION, action)
    for name in ("background.sh", "action.yml"):
        (action / name).write_bytes((ACTION / name).read_bytes().replace(b"\n", b"\r\n"))
    environ["GITHUB_ACTION_PATH"] = str(action)
    (step,) = yaml.safe_load((action / "action.yml").read_text())["runs"]["steps"]
    script = ["bash", "-eo", "pipefail", "-c", step["run"]]
    subprocess.run(script, env=environ | {"INPUT_COMMAND": "start"}, check=True, timeout=30)
    deadline = time.monotonic() + 30
    while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    subprocess.run(script, env=environ | {"INPUT_COMMAND": "stop"}, check=True, timeout=30)
    assert (tmp_path / "output").read_text() == f"log={log}\n" * 2
    assert json.loads(log.read_text().splitlines()[0])["usage_collect_interval"] == 0.1
    subprocess.run(script, env=environ | {"INPUT_COMMAND": "stop"}, check=True, timeout=30)
