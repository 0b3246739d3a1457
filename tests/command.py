"""How does a test run a command beside a running bot? As a process of its own, with that bot's settings."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests import canary

ROOT = Path(__file__).parent.parent


async def ootbot(bot, *arguments):
    """Run `ootbot <arguments>` to its end; returns exit code, stdout and stderr."""
    settings = bot.context.settings
    options = {
        "APP_ID": str(settings.app_id),
        "PRIVATE_KEY": settings.private_key,
        "WEBHOOK_SECRET": settings.webhook_secret[0],
        "UPSTREAM_REPO": settings.upstream_repo[0],
        "ALLOWLIST": settings.allowlist,
        "GITHUB_API_URL": settings.github_api_url,
        "DATA_DIR": str(settings.data_dir),
        "DATABASE_URL": settings.database_url or "",
        "WRITES_PER_MIN": str(settings.writes_per_min),
        "LOG_LEVEL": "error",
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items() if value}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot.cli", *arguments, cwd=settings.data_dir, env=environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert canary.leaks(err.decode()) == []
    return process.returncode, out.decode(), err.decode()
