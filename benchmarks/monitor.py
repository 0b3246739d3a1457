"""What the monitor itself costs: processor time and memory of a run that samples every second.

    python3 dev.py bench monitor [--seconds 60] [--processes 100] [--json]

Without a vendor's tool, beside that many idle processes. Figures are of the whole run, its start included.
"""  # fmt: skip

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.support.machine import describe, show

SCRIPT = Path(__file__).parent.parent / "actions" / "monitor" / "monitor.py"


def measure(seconds: float) -> dict[str, float]:
    """Run the monitor for so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "usage_log.txt"
        command = [sys.executable, "-E", "-s", str(SCRIPT), "--device", "none", "--log", str(log)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(command)
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
        process.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {
            "core_percent": round(100 * used / seconds, 2),
            "peak_mb": round(after.ru_maxrss / 1024, 1),
            "records": log.read_text().count('"record"'),
            "processes_on_the_machine": sum(one.name.isdigit() for one in Path("/proc").iterdir()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=100, help="idle processes beside it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    idle = [subprocess.Popen(["sleep", "86400"]) for _ in range(options.processes)]
    try:
        ours = measure(options.seconds)
    finally:
        for one in idle:
            one.kill()
    show({"name": "monitor", "machine": describe(), "rounds": 1, "ours": ours}, as_json=options.json)


if __name__ == "__main__":
    main()
