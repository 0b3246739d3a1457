"""Temporary files: those of a killed process go while others run, those in use stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bot.evidence.collect.parser_pool import WORKSPACE, ProcessFolder
from tests.process import ROOT
from tests.serving import SQLITE


@SQLITE
async def test_what_a_killed_process_left_is_deleted_while_another_runs(bot, tmp_path):
    """Its folder is young, but nobody holds its lock; a folder that is in use stays, however old."""
    ours = ProcessFolder(bot.context.settings.data_dir / "tmp")
    in_use = ours.make()
    code = "import sys, pathlib; from bot.evidence.collect.parser_pool import ProcessFolder; "
    code += (
        "made = ProcessFolder(pathlib.Path(sys.argv[1])).make(); (made / 'file').write_bytes(bytes(1000)); "
    )
    code += "print(made, flush=True); sys.stdin.read()"
    folder = bot.context.settings.data_dir / "tmp"
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    left = Path(killed.stdout.readline().decode().strip())
    async with bot.context.resource(WORKSPACE).folder():
        await bot.wait(700)  # a sweep
        assert (left / "file").exists()
        killed.kill()
        killed.communicate()
        await bot.wait(700)
        assert not left.parent.exists()
        assert in_use.exists()
    ours.close()
    assert not in_use.exists()
