"""Files of this installation: those that come with the code, presets among them, and the space left on the disk."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1]
GB = 1024**3
LITTLE, TOO_LITTLE = 2 * GB, GB // 4  # bytes free


class Shortage(NamedTuple):
    """How little space is left."""

    words: str
    severe: bool  # the next deliveries may be refused


def config_file(name: str) -> Path:
    """Return a file of config/."""
    return _either(f"_config/{name}", f"config/{name}")


def manifest_file(name: str) -> Path:
    """Return the manifest of an App."""
    return _either(f"_config/{name}", name)


def report_script() -> Path:
    """Return the script of the reporting action."""
    return _either("_report/report.py", "actions/report/report.py")


def read_presets() -> dict[str, dict[str, str]]:
    """Return all presets: name -> option -> its text, as it would stand in the environment."""
    return tomllib.loads(config_file("presets.toml").read_text())


def parse_preset(text: str) -> str:
    """Read a preset's name."""
    names = read_presets()
    if text not in names:
        raise ValueError(f"there is no preset {text[:40]!r}; known are {', '.join(sorted(names))}")
    return text


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on a folder's disk, which may not be there yet; None where nothing can be read."""
    try:
        there = next(each for each in (folder, *folder.resolve().parents) if each.exists())
        return shutil.disk_usage(there).free
    except OSError:
        return None


def find_shortage(folder: Path) -> Shortage | None:
    """Return what to tell the administrator, None while there is enough space."""
    free = free_bytes(folder)
    if free is None or free >= LITTLE:
        return None
    words = f"{free / GB:.1f} GB are free on the disk of DATA_DIR"
    if free < TOO_LITTLE:
        return Shortage(f"{words}: free space now, deliveries are refused when it is full", severe=True)
    return Shortage(f"{words}: nothing more of CI is collected until there are 2 GB", severe=False)


def _either(in_wheel: str, in_checkout: str) -> Path:
    """Prefer the wheel's file: what lies beside an installed package may belong to others."""
    shipped = PACKAGE / in_wheel
    return shipped if shipped.is_file() else PACKAGE.parent / in_checkout
