"""Usage logs for tests: lines as a monitor writes them."""

from __future__ import annotations

import json

START = 1_790_000_000
METADATA = {
    "level": "metadata",
    "workflow_id": "991",
    "job_id": "77",
    "workflow_name": "pull",
    "job_name": "npu / test (default, 1, 2, npu.8)",
    "usage_collect_interval": 1.0,
    "data_model_version": 1.5,
    "start_at": START,
    "gpu_count": 2,
    "cpu_count": 48,
    "gpu_type": "npu-smi",
    "error": None,
}


def metadata(**fields):
    return METADATA | fields


def record(at, *, cpu=10.0, memory=20.0, gpus=(), commands=(), **fields):
    """A record so many seconds after the start; gpus: (uuid, utilization)."""
    data = {"cpu": {"avg": cpu, "max": cpu}, "memory": {"avg": memory, "max": memory}}
    if gpus:
        data["gpu_usage"] = [
            {"uuid": uuid, "util_percent": {"avg": used, "max": used}} for uuid, used in gpus
        ]
    return {"level": "record", "timestamp": START + at, "data": data, "cmd_names": list(commands)} | fields


def text(*lines):
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
