"""Files that come with the code: in a wheel inside bot/ (pyproject.toml), else in the checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def config(name: str) -> Path:
    """Return a file of config/."""
    return _either(f"_config/{name}", f"config/{name}")


def manifest(name: str) -> Path:
    """Return the manifest of an App."""
    return _either(f"_config/{name}", name)


def report_script() -> Path:
    """Return the script of the reporting action."""
    return _either("_report/report.py", "actions/report/report.py")


def _either(in_wheel: str, in_checkout: str) -> Path:
    """Prefer the wheel's file: what lies beside an installed package may belong to others."""
    shipped = PACKAGE / in_wheel
    return shipped if shipped.is_file() else PACKAGE.parent / in_checkout
