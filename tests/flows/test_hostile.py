"""Spoilt bodies, words of strangers, and jobs of any name: nothing breaks, nothing comes through."""

from __future__ import annotations

import asyncio
import copy
import html
import itertools
import json
import random
import re
from pathlib import Path

import pytest

from bot.oot.publish.comment_text import MARKER
from tests.harness import L3, L4, UPSTREAM, report_body
from tests.oot.publish import injections
from tests.oot.publish.rendered import complaints, see
from tests.process import ROOT
from tests.serving import SQLITE

# How does a webhook body go wrong? Bodies as GitHub sends them, spoilt by a seeded generator; the signature is right.


NOTHING_LIKE_IT = [
    None, True, False, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, 1e308, "", " ", "x" * 70_000, "0", "null", "../..",
    "a\x00b", "\ud800", "\udfff\ud800", "\u202e\U0001f47b", "9999999-99-99T99:99:99Z", "+275760-09-13T00:00:00Z",
    "0001-01-01T00:00:00+23:59", "2026-01-01", [], [[]], [None], [1, "a", {}], {}, {"id": None}, {"": {"": ""}}, {"a\x00": 1},
]  # fmt: skip
GHOSTS = ("user", "sender", "owner", "actor", "triggering_actor", "assignee", "head_commit", "organization")


def spoilt(bodies, *, seed, number):
    """Yield (what was done, event, raw body), each different, from (event, payload) as GitHub sends them."""
    chance = random.Random(seed)
    for count in range(number):
        event, payload = bodies[count % len(bodies)]
        changed = copy.deepcopy(payload)
        done = [chance.choice(CHANGES)(changed, chance) for _ in range(chance.choice((1, 1, 2, 5)))]
        raw = json.dumps(changed).encode()
        if chance.random() < 0.3:
            damage = chance.choice(DAMAGES)
            raw = damage(raw, chance)
            done.append(damage.__name__)
        yield f"seed {seed}, body {count}: {'; '.join(done)}", event, raw


def places(value, path=()):
    """Every container and key in a payload, depth first."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key, (*path, key)
        if isinstance(value[key], dict | list):
            yield from places(value[key], (*path, key))


def any_place(payload, chance):
    """A place; one near the top as likely as all below together."""
    found = list(places(payload))
    if chance.random() < 0.5:
        found = [place for place in found if len(place[2]) <= 2]
    return chance.choice(found)


def replace(payload, chance):
    container, key, path = any_place(payload, chance)
    container[key] = copy.deepcopy(chance.choice(NOTHING_LIKE_IT))
    return f"{named(path)} = {container[key]!r:.40}"


def remove(payload, chance):
    container, key, path = any_place(payload, chance)
    del container[key]
    return f"no {named(path)}"


def swap(payload, chance):
    (one, key, path), (other, name, _) = any_place(payload, chance), any_place(payload, chance)
    taken = copy.deepcopy(other[name])
    one[key] = taken
    return f"{named(path)} = what is at {name}"


def null_an_object(payload, chance):
    objects = [place for place in places(payload) if isinstance(place[0][place[1]], dict)]
    if not objects:
        return "no object left"
    container, key, path = chance.choice(objects)
    container[key] = None
    return f"{named(path)} = null"


def ghosts(payload, _chance):
    """Everybody has deleted their account, and the fork is gone."""
    for container, key, path in list(places(payload)):
        if key in GHOSTS or path[-2:] in {("head", "repo"), ("workflow_run", "head_repository")}:
            container[key] = None
    return "ghosts"


def bury(payload, chance):
    container, key, path = any_place(payload, chance)
    for _ in range(depth := chance.choice((10, 65, 200))):
        container[key] = chance.choice(([container[key]], {"a": container[key]}))
    return f"{named(path)} {depth} deep"


def lengthen(payload, chance):
    lists = [place for place in places(payload) if isinstance(place[0][place[1]], list)]
    container, key, path = chance.choice(lists) if lists else any_place(payload, chance)
    container[key] = [copy.deepcopy(chance.choice(NOTHING_LIKE_IT[:-8])) for _ in range(50)]
    return f"{named(path)} of 50 things"


def truncate(raw, chance):
    return raw[: chance.randrange(len(raw))]


def repeat_a_key(raw, chance):
    """The same names again, of other types."""
    value = json.dumps(chance.choice(NOTHING_LIKE_IT)).encode()
    name = chance.choice((b"action", b"repository", b"number", b"sender", b"issue", b"pull_request", b"ref"))
    return raw[:-1] + b', "' + name + b'": ' + value + b"}"


def flip_bytes(raw, chance):
    flipped = bytearray(raw)
    for _ in range(chance.randrange(1, 4)):
        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
    return bytes(flipped)


def huge_number(raw, chance):
    digits = chance.choice(
        (
            b"9" * 400, b"-" + b"9" * 30, b"1e400", b"1e-400", b"NaN", b"-0", b"0" * 20 + b"1",
            b"1." + b"0" * 5_000 + b"1",
        )
    )  # fmt: skip
    return raw.replace(b": 1", b": " + digits, 1)


def nest_deeply(raw, chance):
    depth = chance.choice((600, 950, 985, 50_000))
    return raw[:-1] + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"


def named(path):
    return ".".join(map(str, path))


CHANGES = (
    replace, replace, replace, remove, remove, swap, swap, null_an_object, null_an_object, ghosts, bury,
    lengthen,
)  # fmt: skip
DAMAGES = (truncate, repeat_a_key, repeat_a_key, flip_bytes, huge_number, nest_deeply)


# Does anything GitHub could sign break the bot? Thousands of spoilt bodies, then a proper one.


CORPUS = sorted((ROOT.parent / "shared" / "corpus" / "webhooks").glob("*.json"))
FEW, MANY = 200, 1_000  # bodies for each database; many with --nightly
AT_ONCE = 25
NAMES_A_FIELD = re.compile(
    r"Unreadable: ([a-z_]+(\.[a-z_]+)* is (missing|not)|the body is nested too deeply)"
    r"|OtherRepository: "
)
FAULT = re.compile(r"\w+(Error|Exception): ")  # what nobody expected, as the worker notes it
ENDS = {"handled", "ignored", "parked"}


@pytest.fixture
async def shapes(bot, github):
    """(event, payload) of everything the simulated GitHub tells, and of the recorded webhooks where they are."""
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await github.label(pull, "bug")
    comment = await github.comment(pull, "a word", by="octocat")
    await github.edit_comment(comment, "another word")
    await github.push_commit(pull)
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await github.close(pull)
    await bot.settle()
    recorded = [(file.name.partition(".")[0], json.loads(file.read_bytes())) for file in CORPUS]
    told = [(one.event, one.payload) for one in github.deliveries]
    for event, payload in list(told):
        if event == "issue_comment":
            told.append(("issues", {name: payload[name] for name in payload if name != "comment"}))
            told.append(("repository", {"action": "renamed", "repository": payload["repository"]}))
    return recorded + told


@pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)])
async def test_nothing_github_could_sign_breaks_the_bot(bot, github, shapes, request, number):
    seed = f"{request.node.name} {len(shapes)}"
    bodies = list(spoilt(shapes, seed=seed, number=number))
    answers = {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def send(number, event, raw):
        async with gate:
            answers[f"spoilt-{number}"] = await bot.send(event, None, guid=f"spoilt-{number}", body=raw)

    await asyncio.gather(*(send(number, event, raw) for number, (_, event, raw) in enumerate(bodies)))
    told = {f"spoilt-{number}": what for number, (what, _, _) in enumerate(bodies)}
    refused = {guid: answer for guid, (status, answer) in answers.items() if status != 202}
    assert {told[guid]: answer for guid, answer in refused.items() if answer["error"] != "invalid_json"} == {}
    await bot.settle(horizon=3600)
    rows = {row["guid"]: row for row in await bot.rows("delivery") if row["guid"] in told}
    assert rows.keys() == told.keys() - refused.keys()
    assert {told[guid]: row["state"] for guid, row in rows.items() if row["state"] not in ENDS} == {}
    parked = {guid: row["error"] for guid, row in rows.items() if row["state"] == "parked"}
    assert {told[guid]: why for guid, why in parked.items() if not NAMES_A_FIELD.match(why)} == {}
    assert len(parked) >= number / 100  # some are spoilt where it matters, whatever the shapes are
    assert len(rows) - len(parked) > number / 4
    faults = {
        task["cause"]: task["error"] for task in await bot.rows("task") if FAULT.match(task["error"] or "")
    }
    assert {told.get(guid, guid): why for guid, why in faults.items()} == {}
    fresh = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert bot.checks(UPSTREAM, fresh.head_sha)["oot / gate"][0] == "in_progress"


# What do a stranger's words become on the pull request? In through the front doors, looked at where GitHub holds them.


KINDS = {"MENTIONS": True, "LINKS": False, "HTML": False, "MARKDOWN": True, "UNSEEN": True, "URLS": False}
ALLOWLIST = f"""
L3: {{npu: {{{L3}: [carol]}}}}
L4:
  tpu: {{repo: {L4}, oncalls: [dave], checks: jobs}}
"""


async def told(bot, github, words, *, by_job):
    """Return a pull request on which everybody has said these words where they can, and how many jobs are called so."""
    if by_job:
        (bot.context.settings.data_dir / "allowlist.yml").write_text(ALLOWLIST)
        await bot.wait(60)
    github.set_permission(UPSTREAM, "wendy", "write")
    # GitHub's own JSON is well formed
    sent = [word for word in words if not re.search("[\ud800-\udfff]", word)]
    reason = {"message": " ".join(sent)[:900]}
    github.faults.add(method="POST", path=f"{L3}/dispatches", status=422, body=reason)
    labels = ["ciflow/oot/npu", *sent[:20]]
    pull = await github.open_pull(UPSTREAM, title=sent[0], body=f"{MARKER}\n{sent[0]}", labels=labels)
    await bot.settle()
    taken = [await report(bot, word) for word in words]
    assert set(taken) <= {200, 400}
    assert taken.count(200) > len(words) / 2
    for word in sent[:8]:
        await github.comment(pull, f"/oot {word}\n/oot status {word}", "mallory")
    await github.comment(pull, f"{MARKER}\n{sent[0]}", "mallory")
    bot.clock.advance(1)
    await github.comment(pull, f"/oot ignore npu {sent[1]}", "wendy")
    await bot.settle(horizon=120)
    return pull, taken.count(200)


async def report(bot, word):
    tests = [
        {"name": word, "classname": word, "file": word, "line": 3, "message": word, "stacktrace": f"{word}\n{word}"},
        {"name": f"test {word}", "file": "src/operator.py", "line": 1, "message": word},
    ]  # fmt: skip
    said = {
        "name": word, "url": word, "artifact_url": word, "environment": {word: word}, "failed_tests": tests,
    }  # fmt: skip
    status, _ = await bot.report(bot.dispatch(L4), conclusion="failure", job=word, **said)
    return status


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("kind", "by_job"), KINDS.items())
async def test_a_strangers_words_do_nothing_on_the_pull_request(bot, github, kind, by_job):
    words = getattr(injections, kind)
    pull, jobs = await told(bot, github, words, by_job=by_job)
    (ours,) = [one for one in github.comments(pull) if one.app is not None]
    assert complaints(ours.body, live=frozenset({"carol", "dave"}), comments=1) == []
    assert f"| {jobs} of {jobs} failed |" in ours.body
    assert ours.body.count(MARKER) == 1
    assert see(ours.body).tags.count("tr") == 3
    runs = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.app is bot.app]
    assert len(runs) > (len(words) / 2 if by_job else 2)
    for run in runs:
        for line in (run.name, run.output.title):
            assert len(line.splitlines()) == 1
            assert not re.search(r"@\w", line)
        for text in (run.output.summary, run.output.text):
            assert complaints(text or "") == [], run.name
        for mark in run.output.annotations:
            assert not re.search(r"@\w", mark["message"] + mark.get("title", ""))


# Every job is itself, whatever it is called: a row, a check run, a line of JSON and of the page.


NAMES = [
    "build:cuda", "build/cuda", "a / b", "a  b", "测试 🚀", "x" * 300 + "1", "x" * 300 + "2", "<b>&amp;", "null",
]  # fmt: skip
IDS = ["8d0c4c1e-7b1f-4a52-9d2e-0d6f2b9c41aa", "900:1"]


@SQLITE
async def test_strange_names_and_ids_are_checks_of_their_own_and_come_back_as_they_were(bot, github):
    path = Path(bot.context.settings.allowlist)
    path.write_text(f"L3: {{npu: {{repo: {L3}, checks: jobs}}}}")
    await bot.wait(61)
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    told = list(itertools.product(NAMES, IDS))
    for number, (name, run_id) in enumerate(told):
        body = report_body(
            bot.dispatch(L3), status="in_progress", conclusion=None, job=name, run_id=run_id, attempt=1
        )
        body["workflow"] |= {"name": f"w/{name}"[:300], "check_run_id": f"{run_id}/{number}"}
        headers = {"Authorization": f"Bearer {bot.issuer.mint(repository=L3, run_id=run_id)}"}
        status, answer = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
        assert (status, answer["status"]) == (200, "in_progress")
    await bot.wait(60)
    checks = bot.checks(UPSTREAM, pull.head_sha)
    running = [name for name, (status, _, _) in checks.items() if status == "in_progress" and "/ w" in name]
    assert len(running) == len(told)
    assert {conclusion for _, conclusion, _ in checks.values()} == {None}
    _, answer = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    shown = {(row["job_name"], row["run_id"], row["check_run_id"]) for row in answer["jobs"]}
    assert shown == {(name, run_id, f"{run_id}/{number}") for number, (name, run_id) in enumerate(told)}
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    for name in ("build:cuda", "build/cuda", "测试 🚀", "<b>&amp;"):
        assert html.escape(name) in page
