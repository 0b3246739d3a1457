"""How does a test run a command beside a running bot? As a process of its own, with that bot's settings."""

from __future__ import annotations

import os

from tests import forks, secret_markers


async def ootbot(bot, *arguments, more=None, **changed):
    """Run `ootbot <arguments>` to its end; returns exit code, stdout and stderr.

    `changed` are further settings, `more` what else is in its environment.
    """
    settings = bot.context.settings
    options = {
        "APP_ID": str(settings.app_id), "PRIVATE_KEY": settings.private_key,
        "WEBHOOK_SECRET": settings.webhook_secret[0], "UPSTREAM_REPO": settings.upstream_repo[0],
        "ALLOWLIST": settings.allowlist, "GITHUB_API_URL": settings.github_api_url,
        "DATA_DIR": str(settings.data_dir), "DATABASE_URL": settings.database_url or "",
        "WRITES_PER_MIN": str(settings.writes_per_min), "LOG_LEVEL": "error", **changed,
    }  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items() if value}
    environ |= more or {}
    process = await forks.ootbot(*arguments, cwd=settings.data_dir, env=environ, apart=True)
    out, err = await process.communicate()
    assert secret_markers.leaks(err.decode()) == []
    return process.returncode, out.decode(), err.decode()
