"""What a machine did, in one line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.ci.utilization.parse.segments import in_background, shown_name
from bot.core import escaping

if TYPE_CHECKING:
    from bot.ci.utilization.tables import JobSummary
    from bot.web.blocks import Tone

NAME_MOST = 80  # characters of a command
IDLE_MUCH = 0.5  # share from which on idle accelerators are worth a warning
GPUS = frozenset({"pynvml", "nvidia-smi", "amdsmi", "amd-smi", "rocm-smi", "xpu-smi"})
WHY_NOT = {
    "no_records": "the usage log holds no records",
    "legacy": "the usage log is of an older model",
    "refused": "the usage log was refused",
}


def summarize_job(job: JobSummary) -> str:
    """Return a job's utilization; of one that was not charted, why."""
    if job["status"] != "ok":
        return f"{WHY_NOT.get(job['status'], job['status'])}: {job['reason']}"
    parts = []
    if job["cpu_avg"] is not None:
        parts.append(f"CPU {job['cpu_avg']:.0f} % avg")
    if job["mem_max"] is not None:
        parts.append(f"memory {job['mem_max']:.0f} %{_when(job)}")
    share = idle_share(job)
    if share is not None:
        parts.append(f"{accelerators(job['gpu_type'])} idle {share:.0%}".replace("%", " %"))
    return ", ".join(parts) or "records without numbers"


def tone_of_job(job: JobSummary) -> Tone:
    """Return its colour and sign."""
    if job["status"] != "ok":
        return "idle"
    return "warn" if job["oom_risk"] or (idle_share(job) or 0) >= IDLE_MUCH else "good"


def idle_share(job: JobSummary) -> float | None:
    """Return which share of the time of its accelerators none was used; None without any."""
    return min(1.0, job["idle_gpu_s"] / job["gpu_s"]) if job["gpu_s"] else None


def accelerators(gpu_type: str | None) -> str:
    """Return what a machine's accelerators are called."""
    kind = (gpu_type or "").casefold()
    for part, name in (("npu", "NPUs"), ("tpu", "TPUs")):
        if part in kind:
            return name
    return "GPUs" if kind in GPUS else "accelerators"


def at_time(seconds: int) -> str:
    """Return the time of day, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}"


def command(name: str, most: int = NAME_MOST) -> str:
    """Return what of a command is worth reading, on one line."""
    return escaping.shorten(escaping.one_line(shown_name(name)), most)


def _when(job: JobSummary) -> str:
    peak = job["peak"]
    if peak is None:
        return ""
    ran = [name for name in peak["commands"] if name.startswith("python") and not in_background(name)]
    more = f" and {len(ran) - 1} more" if len(ran) > 1 else ""
    return f" at {at_time(peak['at'])[:5]}" + (f" while {command(ran[0])}{more} ran" if ran else "")
