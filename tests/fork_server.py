"""Who starts the same bot again within a tenth of a second? A process that has read the program and forks.

Each line on its standard input starts one `ootbot serve` with the settings of the environment; its process id is
printed, and how it ended once it has. The argument is by how many minutes the clock of the bot's machine is ahead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bot import cli, serving
from bot.console import common
from tests.clocks import Off

minutes = float(sys.argv[1])


def serve_elsewhere():
    """Do what `ootbot serve` does, on a machine with a wrong clock."""

    def ready(address):
        sys.stdout.write(f"ootbot at {address}\n")
        sys.stdout.flush()

    common.run_work(serving.serve(common.load_settings(None), ready=ready, machine=Off(minutes)))


for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        serve_elsewhere() if minutes else cli.main(["serve"])
        os._exit(0)
    sys.stdout.write(f"started {pid}\n")
    sys.stdout.flush()
    sys.stdout.write(f"ended {os.waitpid(pid, 0)[1]}\n")
    sys.stdout.flush()
