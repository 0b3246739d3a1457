"""Who starts the same bot again within a tenth of a second? A process that has read the program and forks.

Each line on its standard input starts one `ootbot serve` with the settings of the environment; its process id is
printed, and how it ended once it has.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bot import app, cli

assert app  # so that the children need not import it

for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        cli.main(["serve"])
        os._exit(0)
    sys.stdout.write(f"started {pid}\n")
    sys.stdout.flush()
    sys.stdout.write(f"ended {os.waitpid(pid, 0)[1]}\n")
    sys.stdout.flush()
