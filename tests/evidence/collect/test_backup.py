"""`ootbot backup --blobs`: what was collected comes back with the database."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace

from bot.evidence.collect import blobs
from tests import harness
from tests.command import ootbot
from tests.evidence.logs.conftest import bot, logs  # noqa: F401 - fixtures
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


async def test_a_log_is_read_from_a_restored_copy(bot, logs, tmp_path, settings, github, issuer, clock):  # noqa: F811
    job = await logs.arrives("FAILED t.py::test_x\n")
    target, folder = tmp_path / "copy.db", tmp_path / "kept"
    code, out, err = await ootbot(bot, "backup", str(target), "--blobs", str(folder))
    assert (code, err) == (0, ""), out
    assert "1 files" in out
    (kept,) = [path for path in folder.rglob("*") if path.is_file()]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    shutil.rmtree(blobs.blobs_place(bot.context.settings))
    _, out, _ = await ootbot(bot, "backup", str(tmp_path / "again.db"), "--blobs", str(folder))
    assert "0 files" in out
    assert kept.exists()  # nothing is deleted there

    restored = tmp_path / "restored"
    shutil.copytree(folder, restored / "blobs")
    shutil.copy(target, restored / "ootbot.db")
    chosen = replace(settings, of_features={}, data_dir=restored, database_url=None)
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as other:
        status, text = await other.get(f"/{UPSTREAM}/job/{job.id}/log.txt")
    assert (status, text) == (200, "FAILED t.py::test_x\n")


async def test_only_a_folder_elsewhere_takes_the_copy(bot, logs, tmp_path):  # noqa: F811
    await logs.arrives("x\n")
    inside = f"{blobs.blobs_place(bot.context.settings)}/kept"
    code, _, err = await ootbot(bot, "backup", str(tmp_path / "a.db"), "--blobs", inside)
    assert (code, "choose another folder" in err) == (1, True), err
    config = tmp_path / "bucket.toml"
    config.write_text('blobs = "s3://bucket/prefix"\n')
    command = ("backup", str(tmp_path / "b.db"), "--blobs", str(tmp_path / "b"), "--config", str(config))
    code, _, err = await ootbot(bot, *command)
    assert (code, "copy the bucket" in err) == (1, True), err
