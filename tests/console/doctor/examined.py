"""Run `ootbot doctor` beside a bot."""

import json
import os

from bot.github import manifest
from tests import forks
from tests.harness import SECRET

ONE = manifest.manifest_for("one")


async def doctor(options, folder, *arguments):
    """Run it with these options; returns exit code, findings by name, and all it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items()}
    process = await forks.ootbot("doctor", *(arguments or ("--json",)), cwd=folder, env=environ)
    said = (await process.communicate())[0].decode()
    assert options["PRIVATE_KEY"].splitlines()[1] not in said
    assert options.get("WEBHOOK_SECRET", SECRET) not in said
    found = {}
    if not arguments:
        for check in json.loads(said)["checks"]:
            found.setdefault(check["name"], []).append(check)
            assert (check["status"] == "ok") == (check["next"] == "")
    return process.returncode, found, said


def errors(found):
    return {name for name, checks in found.items() if any(check["status"] == "error" for check in checks)}
