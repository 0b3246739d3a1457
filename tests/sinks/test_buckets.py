"""A bucket of S3, as moto has it: the same objects as in a directory, with their metadata, and an archive to replay."""

from __future__ import annotations

import gzip
import os

import pytest
from obstore.store import from_url

from bot.db.exports import Export, StoredObject
from bot.ingest.tables import records
from bot.sinks.driver import Batch, Outgoing
from bot.sinks.objects import ObjectDriver, ObjectStorage
from tests.command import ootbot
from tests.evidence.collect import bucket
from tests.harness import UPSTREAM
from tests.serving import SQLITE
from tests.sinks.stored import files
from tests.sinks.test_archive import Elsewhere, delivered, records_in

ARCHIVE, COPIES = (f"s3://{bucket.NAME}/{name}" for name in ("archive", "copies"))
TABLES = {
    "archive": {"kind": "objects", "url": ARCHIVE, "what": ["deliveries"]},
    "copies": {"kind": "objects", "url": COPIES, "layout": "upstream", "what": ["records", "deliveries"]},
    "beside": {
        "kind": "objects",
        "url": "FOLDER/copies",
        "layout": "upstream",
        "what": ["records", "deliveries"],
    },
}
pytestmark = [SQLITE, pytest.mark.parametrize("tables", [TABLES], indirect=True, ids=["s3"])]


@pytest.fixture(scope="module")
def server():
    with bucket.serving() as variables:
        yield variables


@pytest.fixture
async def bot(server, monkeypatch, bot):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return bot


def objects(url):
    store = from_url(url)
    keys = [one["path"] for some in store.list() for one in some]
    return {key: store.get(key) for key in keys}


async def test_a_bucket_holds_what_a_directory_holds(bot, github, folder, tmp_path):
    await delivered(bot, github)
    found = {key: gzip.decompress(bytes(one.bytes())) for key, one in objects(COPIES).items()}
    assert found == files(folder / "copies")
    assert any(key.startswith(f"workflow_job/{UPSTREAM}/") for key in found)
    first = next(one for key, one in objects(COPIES).items() if key.startswith("workflow_job/"))
    assert {name: first.attributes[name] for name in ("Content-Type", "Content-Encoding")} == {
        "Content-Type": "application/json", "Content-Encoding": "gzip",
    }  # fmt: skip
    rows = {row["guid"]: row for row in await bot.rows("delivery")}
    for key, one in objects(ARCHIVE).items():
        if key.startswith("raw/manifest/"):
            continue
        row = rows[key.rpartition("/")[2].removesuffix(".json.gz")]
        said = one.attributes
        assert (said["event"], said["repo"], said["received-at"]) == (
            row["event"], row["repo"], str(row["received_at"]),
        )  # fmt: skip
    there = Elsewhere(bot, tmp_path / "empty")
    code, _, err = await ootbot(there, "replay", "--from-objects", ARCHIVE)
    assert code == 0, err
    assert records_in(tmp_path / "empty") == records_in(bot.context.settings.data_dir)


async def test_a_large_object_goes_there_in_parts(bot):
    driver = ObjectDriver(ObjectStorage(f"s3://{bucket.NAME}/large"))
    pieces = [os.urandom(1024 * 1024) for _ in range(18)]
    made = StoredObject(key="test_run/1/1", content=lambda: iter(pieces))
    export = Export(name="x", table=records["workflow_job"], day="received_at")
    batch = Batch(export=export, make=lambda *_: [made], items=[Outgoing((1,), {})])
    assert await driver.send(batch) == []
    (stored,) = objects(f"s3://{bucket.NAME}/large").values()
    assert gzip.decompress(bytes(stored.bytes())) == b"".join(pieces)
