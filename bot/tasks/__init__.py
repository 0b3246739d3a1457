"""What can be asked for? The task kinds; the only code that talks to the world.

Each module has `async def run(context, task)`: it makes true what the key names, and may be run again at any time.
"""

from __future__ import annotations

from bot.tasks import (
    allowlist,
    approve,
    cancel,
    command,
    comment,
    confirm,
    dispatch,
    installed,
    prune,
    publish,
    pull,
    reconcile,
    redeliver,
    relay,
    rerun,
    rollup,
    run_again,
    sweep,
    verify_commit,
)

KINDS = {
    "allowlist": allowlist.run,
    "approve": approve.run,
    "cancel": cancel.run,
    "command": command.run,
    "comment": comment.run,
    "confirm": confirm.run,
    "dispatch": dispatch.run,
    "installed": installed.run,
    "prune": prune.run,
    "publish": publish.run,
    "pull": pull.run,
    "reconcile": reconcile.run,
    "redeliver": redeliver.run,
    "relay": relay.run,
    "rerun": rerun.run,
    "rollup": rollup.run,
    "run_again": run_again.run,
    "sweep": sweep.run,
    "verify_commit": verify_commit.run,
}
PERIODIC = {  # seconds between runs
    "allowlist": 30.0,
    "prune": 3600.0,
    "reconcile": 600.0,
    "redeliver": 600.0,
    "rollup": 10.0,
    "sweep": 60.0,
}
