"""Uploads of backends on another CI: who may, how much, what becomes of the file, and what the reporting action sends."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from bot.evidence.collect import blobs, uploads
from bot.evidence.collect.tables import ci_upload
from tests.harness import L1, L2, L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

LOG = b"one\ntwo\n"
SCRIPT = Path(__file__).parents[3] / "actions" / "report" / "report.py"
XML = '<testsuite><testcase name="t"/></testsuite>'


@pytest.fixture
async def dispatch(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    return bot.dispatch(L3)


async def send(bot, dispatch, body=LOG, *, repo=L3, token=None, headers=None, **query):
    payload = dispatch.client_payload
    wanted = {
        "kind": "log",
        "delivery_id": payload["delivery_id"],
        "run_id": "900",
        "workflow": "CI",
        "job": "build",
    }
    wanted = {name: value for name, value in (wanted | query).items() if value is not None}
    bearer = token or bot.issuer.mint(repository=repo, run_id="900", run_attempt=1)
    sent = {"Authorization": f"Bearer {bearer}", uploads.TOKEN_HEADER: payload["callback_token"]} | (
        headers or {}
    )
    sent = {name: value for name, value in sent.items() if value is not None}
    return await bot.request("POST", "/api/oot/uploads", params=wanted, data=io.BytesIO(body), headers=sent)


async def test_a_log_is_kept_and_read(bot, dispatch, received):
    status, answer = await send(bot, dispatch)
    assert (status, answer["ok"]) == (202, True)
    await bot.settle()
    assert received == []  # until it is known whether the job failed
    await bot.report(dispatch, conclusion="failure")
    await bot.settle()
    (row,) = await bot.rows("ci_upload")
    assert (row["backend"], row["job"], row["size"], row["id"]) == (L3, "build", len(LOG), answer["upload"])
    (fetched, parsed, blob) = received[-1]
    assert (fetched.source, fetched.repo, fetched.object_id, fetched.trusted) == (
        "upload",
        L3,
        -row["id"],
        False,
    )
    assert parsed == {"lines": 2, "last": b"two"}
    store = blobs.open_blobs(bot.context.settings)
    assert {one.key async for one in store.list()} == {blob}
    (state,) = await bot.rows("ci_fetch")
    assert (state["kind"], state["state"]) == ("upload", "stored")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"kind": "sbom"}, 400, "invalid_parameter"),
        ({"kind": None}, 400, "invalid_parameter"),
        ({"job": None}, 400, "invalid_parameter"),
        ({"run_attempt": "0"}, 400, "invalid_parameter"),
        ({"run_id": "901"}, 403, "forbidden"),
        ({"delivery_id": "unknown"}, 404, "unknown_dispatch"),
        ({"token": "nonsense"}, 401, "invalid_token"),
        ({"repo": L1}, 403, "not_listed"),
        ({"repo": L2}, 404, "unknown_dispatch"),
        ({"headers": {uploads.TOKEN_HEADER: None}}, 403, "forbidden"),
        ({"headers": {uploads.TOKEN_HEADER: "wrong"}}, 403, "forbidden"),
        ({"headers": {"Content-Encoding": "gzip"}}, 415, "unsupported_encoding"),
    ],
)
async def test_an_upload_without_the_right_to_it_is_refused(bot, dispatch, change, status, code):
    if change.get("repo") == L2:
        change = change | {"delivery_id": "of-another-backend"}
    got, answer = await send(bot, dispatch, **change)
    assert (got, answer["error"]) == (status, code), answer
    assert await bot.rows("ci_upload") == []


async def test_the_known_kinds_are_named(bot, dispatch):
    _, answer = await send(bot, dispatch, kind="benchmark")
    assert "junit, log, usage" in answer["detail"]


async def test_one_byte_over_the_limit_is_refused(bot, dispatch):
    assert (await send(bot, dispatch, bytes(uploads.UPLOAD_LIMIT)))[0] == 202
    status, answer = await send(bot, dispatch, bytes(uploads.UPLOAD_LIMIT + 1))
    assert (status, answer["error"]) == (413, "body_too_large")


async def test_two_gibibytes_a_day_are_the_most(bot, dispatch):
    import sqlalchemy as sa

    from bot.evidence.collect.tables import ci_upload

    assert (await send(bot, dispatch))[0] == 202
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(ci_upload).values(size=uploads.DAILY_LIMIT))
    status, answer = await send(bot, dispatch)
    assert (status, answer["error"]) == (429, "rate_limited")
    bot.clock.advance(86_401)
    token = bot.issuer.mint(repository=L3, run_id="900", run_attempt=1)
    assert (await send(bot, dispatch, token=token))[0] == 202


@pytest.fixture
async def report(bot, github, tmp_path):
    """Report the end of a dispatched job with these options; returns exit code and output."""
    await github.open_pull(UPSTREAM)
    await bot.settle()
    payload = bot.dispatch(L3).client_payload
    folder = tmp_path / "work"
    folder.mkdir()

    async def report(*options, callback="/api/oot/callback", **change):
        event = {"client_payload": {**payload, "callback_url": bot.url + callback, **change}}
        (folder / "event.json").write_text(json.dumps(event))
        token = bot.issuer.mint(repository=L3, run_id="900", run_attempt=1)
        options_given = (
            "--status=completed --conclusion=failure --workflow-name=CI --job-name=build --run-id=900"
        )
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-E",
                "-s",
                str(SCRIPT),
                "--event=event.json",
                *options_given.split(),
                *options,
            ),
            cwd=folder,
            env={"PATH": os.environ["PATH"], "OOTBOT_TOKEN": token},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    report.folder = folder
    return report


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_reports_of_tests_are_packed_and_uploaded_for_the_job(bot, report, received):
    write(report.folder, out__a__one_xml=XML, out__two_xml=XML, out__three_jsonl="{}\n", out__notes_txt="no")
    code, output = await report("--test-reports=out/**/*")
    assert (code, output) == (0, "ootbot took the report: completed\nootbot took 1 uploaded file\n")
    (row,) = await bot.rows("ci_upload")
    assert [row[name] for name in ("backend", "workflow", "job", "run_id", "run_attempt", "kind", "name")] == [
        L3, "CI", "build", "900", 1, "junit", "test-reports.zip",
    ]  # fmt: skip
    await bot.settle()
    (_, found, _) = received[-1]
    assert set(found) == {"out/a/one.xml", "out/two.xml", "out/three.jsonl"}


async def test_an_archive_goes_as_it_is_and_a_usage_log_beside(bot, report, received):
    with zipfile.ZipFile(report.folder / "out.zip", "w") as archive:
        archive.writestr("one.xml", XML)
    write(report.folder, usage_txt="{}\n")
    code, output = await report("--test-reports=out.zip", "--usage-log=usage.txt")
    assert (code, output.splitlines()[-1]) == (0, "ootbot took 2 uploaded files")
    assert [(row["kind"], row["name"]) for row in await bot.rows("ci_upload")] == [
        ("junit", "out.zip"),
        ("usage", "usage.txt"),
    ]


@pytest.mark.parametrize(
    ("options", "change", "reason"),
    [
        (["--test-reports=none/*.xml"], {}, "no .xml, .jsonl or .zip file matches none/*.xml"),
        (["--usage-log=none.txt"], {}, "no usage log was uploaded: none.txt is not a file"),
        (["--test-reports=big.zip"], {}, "big.zip was not uploaded: 65 MiB, the most is 64 MiB"),
        (["--test-reports=*.xml"], {"callback": "/api/oot/callback/elsewhere"}, "404"),
    ],
)
async def test_what_cannot_be_uploaded_is_a_warning(bot, report, received, options, change, reason):
    write(report.folder, one_xml=XML)
    with (report.folder / "big.zip").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    code, output = await report(*options, **change)
    assert code == ("callback" in change)
    assert reason in output
    assert await bot.rows("ci_upload") == []


async def test_links_out_of_the_folder_are_not_followed(bot, report, received, tmp_path):
    write(tmp_path / "secrets", key_xml="secret")
    write(report.folder, out__one_xml=XML)
    (report.folder / "out" / "two.xml").symlink_to(tmp_path / "secrets" / "key.xml")
    (report.folder / "out" / "sub").symlink_to(tmp_path / "secrets")
    (report.folder / "usage.txt").symlink_to(tmp_path / "secrets" / "key.xml")
    code, output = await report("--test-reports=out/**/*.xml", "--usage-log=usage.txt")
    assert code == 0
    assert "usage.txt is not a file" in output
    await bot.settle()
    (_, found, _) = received[-1]
    assert set(found) == {"out/one.xml"}


async def test_a_bot_that_refuses_files_has_the_report_all_the_same(bot, report, received):
    import sqlalchemy as sa

    write(report.folder, one_xml=XML)
    assert (await report("--test-reports=*.xml"))[0] == 0
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(ci_upload).values(size=1 << 31))
    code, output = await report("--test-reports=*.xml", "--deadline=1")
    assert code == 0
    assert "test-reports.zip was not uploaded" in output
    assert "429" in output
