"""Usage logs of the demo's jobs, as a monitor beside the job writes them."""

from __future__ import annotations

import json
import random

INTERVAL = 5  # seconds between two records
LENGTH = 7_200  # seconds
PEAK = 4_260  # when memory is fullest
IDLE = range(2_400, 4_200)  # in which no accelerator is used
COMMANDS = (  # name, from, to
    ("python -m tools.stats.monitor", 0, LENGTH),
    ("python -m pip install -r requirements.txt", 0, 150),
    ("python test/run_test.py --shard-id 1", 150, LENGTH),
    ("python -m pytest test/test_ops.py -x", 180, 4_380),
    ("python -m pytest test/test_nn.py -x", 900, 5_400),
    ("python -m pytest test/test_compile.py -x", 3_900, 6_000),
    ("python -m pytest test/distributed/test_collectives.py -x", 6_060, LENGTH),
)


def usage_log(
    name: str,
    *,
    start_at: int,
    seed: int = 1,
    peak: float = 97.4,
    interval: int = INTERVAL,
    length: int = LENGTH,
    gpus_read_by: str = "npu-smi",
) -> bytes:
    """Return the log of a job with two accelerators that began then (seconds): a memory peak, an idle half hour."""
    chance = random.Random(seed)  # noqa: S311 - a story, no secret
    metadata = {
        "level": "metadata",
        "workflow_id": "",
        "job_id": "",
        "workflow_name": "pull",
        "job_name": name,
        "usage_collect_interval": 1.0,
        "data_model_version": 1.5,
        "start_at": start_at,
        "gpu_count": 2,
        "cpu_count": 48,
        "gpu_type": gpus_read_by,
        "error": None,
    }
    cpu, lines = 40.0, [metadata]
    for second in range(0, length, interval):
        cpu = min(92.0, max(8.0, cpu + chance.uniform(-6, 6)))
        usual = 24 + second / LENGTH * 18
        memory = usual + (peak - usual) * max(0.0, 1 - abs(second - PEAK) / 420)
        record = {
            "level": "record",
            "timestamp": start_at + second,
            "data": {
                "cpu": _stats(cpu, 100.0 if second == 1_500 else cpu + chance.uniform(0, 8)),
                "memory": _stats(memory - 0.3, memory),
                "gpu_usage": [_device(chance, number, second) for number in range(2)],
            },
            "cmd_names": [command for command, begin, end in COMMANDS if begin <= second < end],
            "error": None,
        }
        lines.append(record)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _device(chance: random.Random, number: int, second: int) -> dict[str, object]:
    idle = second in IDLE or second < 180
    used = 1.0 if idle else chance.uniform(55, 80) - 20 * number
    allocated = 6.0 if second < 180 else 34 + 20 * number + second / LENGTH * 25
    return {
        "uuid": f"NPU-{number}",
        "util_percent": _stats(used, used + (0 if idle else 12)),
        "mem_util_percent": _stats(used / 3, used / 2),
        "allocated_mem_percent": _stats(allocated, allocated + 1),
        "allocated_mem_value": _stats(allocated * 655.36, (allocated + 1) * 655.36),
        "total_mem_value": 65_536.0,
    }


def _stats(mean: float, most: float) -> dict[str, float]:
    return {"avg": round(mean, 2), "max": round(most, 2)}
