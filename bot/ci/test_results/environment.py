"""Where tests ran."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, kw_only=True):
    """Where the tests ran, as the report says."""

    os: str = ""
    os_version: str = ""
    cpu_architecture: str = ""
    cpu_capability: str = ""
    python_version: str = ""
    cc_compiler: str = ""
    cc_compiler_version: str = ""
    accelerator: str = ""  # cpu, cuda, …: backends write their own
    accelerator_version: str = ""
    device_count: int = 0
    device_name: str = ""
