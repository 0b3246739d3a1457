"""What can be asked for? The task kinds; the only code that talks to the world.

Each module has `async def run(context, task)`: it makes true what the key names, and may be run again at any time.
"""

from __future__ import annotations

from bot.tasks import allowlist, comment, confirm, dispatch, publish, relay, rerun, sweep

KINDS = {
    "allowlist": allowlist.run,
    "comment": comment.run,
    "confirm": confirm.run,
    "dispatch": dispatch.run,
    "publish": publish.run,
    "relay": relay.run,
    "rerun": rerun.run,
    "sweep": sweep.run,
}
PERIODIC = {"allowlist": 60.0, "sweep": 60.0}  # seconds between runs
