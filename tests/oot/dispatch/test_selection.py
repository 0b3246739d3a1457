"""Backends run only what is worth running: by changed files, labels, drafts, branches and samples of pushes."""

import pytest

from tests.flows.scenarios import dispatched_to, reasons, states
from tests.harness import L1, L2, L3, UPSTREAM
from tests.oot.dispatch.selected import SKIPPED, SOURCES, asked_for_files, entry, open_pull, push_files

pytestmark = pytest.mark.logic
BY_PATHS = entry(f"paths: {SOURCES}")


@pytest.mark.parametrize(
    ("files", "sent"),
    [
        (["torch/csrc/a.cpp"], True),
        (["docs/index.rst", "torch/csrc/jit/b.h"], True),
        (["docs/index.rst"], False),
        (["torch/csrc/README.md"], False),  # the last glob that matches decides
        (["csrc/torch/csrc/a.cpp"], False),
        ([], False),
    ],
)
async def test_a_pull_request_is_run_where_a_file_of_interest_changed(bot, github, files, sent):
    await bot.list_backends(BY_PATHS)
    await github.open_pull(UPSTREAM, files=files)
    await bot.settle()
    assert dispatched_to(github) == ([L2] if sent else [])
    assert await states(bot, L2) == ["sent" if sent else "skipped_paths"]
    assert await reasons(bot, L2) == [None if sent else SKIPPED]


async def test_the_files_of_a_head_are_listed_once_whatever_the_number_of_backends(bot, github):
    many = ", ".join(f"{{repo: org/b{one}, paths: [src/**, '!src/{one}/**']}}" for one in range(200))
    await bot.list_backends(f"L2: [{many}]")
    before = len(github.calls)
    pull = await open_pull(bot, github, "docs/a.md")
    asked = [call.path for call in github.calls[before:] if call.method == "GET"]
    address = f"/repos/{UPSTREAM}/pulls/{pull.number}"
    assert [path for path in asked if path.startswith(address)] == [f"{address}/files", address]
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"skipped_paths"}
    await github.label(pull, "whatever")
    await github.close(pull)
    await bot.settle()
    assert len(asked_for_files(github)) == 1
    assert len(await bot.rows("oot_dispatch")) == 200, (
        "backends that were sent nothing do not hear of the closing"
    )


async def test_a_push_of_another_history_is_judged_anew(bot, github):
    await bot.list_backends(BY_PATHS)
    pull = await open_pull(bot, github, "docs/a.md")
    await push_files(bot, github, pull, "docs/a.md", "torch/csrc/a.cpp")
    assert dispatched_to(github) == [L2]
    await push_files(bot, github, pull, "docs/a.md")
    assert await states(bot, L2) == ["skipped_paths", "sent", "skipped_paths"]
    assert len(asked_for_files(github)) == 3
    await github.close(pull)
    await bot.settle()
    told = bot.dispatch(L2).client_payload["payload"]
    assert (told["action"], told["pull_request"]["head"]["sha"]) == ("closed", pull.commits[1])


@pytest.mark.parametrize(("count", "sent"), [(3_000, False), (3_001, True)])
async def test_more_files_than_github_lists_are_run(bot, github, count, sent):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, *(f"docs/{one}.md" for one in range(count)))
    assert bool(dispatched_to(github)) is sent
    assert len(asked_for_files(github)) == (0 if sent else 30), "all pages of a hundred, or none"


async def test_what_github_does_not_tell_keeps_no_backend_from_running(bot, github):
    await bot.list_backends(BY_PATHS)
    github.faults.add(method="GET", path="/files", status=403, body={"message": "No"}, times=50)
    await open_pull(bot, github, "docs/a.md")
    await bot.settle(horizon=60)
    assert dispatched_to(github) == [L2]


@pytest.mark.parametrize("status", [404, 422])
async def test_files_that_github_does_not_know_yet_are_asked_for_again(bot, github, status):
    await bot.list_backends(BY_PATHS)
    pull = await open_pull(bot, github, "docs/a.md")
    await bot.wait(3600)
    github.faults.add(method="GET", path="/files", status=status, times=1)
    await push_files(bot, github, pull, "docs/a.md", "torch/csrc/README.md")
    assert await states(bot, L2) == ["skipped_paths"]
    bot.clock.advance(5)
    await bot.settle()
    assert await states(bot, L2) == ["skipped_paths", "skipped_paths"]


@pytest.mark.nightly
async def test_files_that_github_never_knows_are_run_after_two_minutes(bot, github):
    await bot.list_backends(BY_PATHS)
    github.faults.add(method="GET", path="/files", status=404, times=50)
    await open_pull(bot, github, "docs/a.md")
    assert dispatched_to(github) == []
    await bot.wait(150)  # it is asked every half a minute at last
    assert dispatched_to(github) == [L2]


@pytest.mark.parametrize(("branch", "sent"), [("main", False), ("release/1", True), ("release/1/x", False)])
async def test_pushes_to_other_branches_are_not_run(bot, github, branch, sent):
    await bot.list_backends(entry('events: [push], branches: ["release/?"]'))
    await github.push(UPSTREAM, branch)
    await bot.settle()
    assert await states(bot, L2) == ["sent" if sent else "skipped_branches"]


@pytest.mark.nightly
async def test_a_backend_whose_entry_is_changed_between_event_and_dispatch(bot, github):
    """Taken off, it is sent nothing; at another level, what was skipped stays skipped until something asks."""
    await bot.list_backends(f"L2: [{{repo: {L2}, paths: {SOURCES}}}, {L3}]")
    await open_pull(bot, github, "docs/a.md")
    assert dispatched_to(github) == [L3]
    await bot.list_backends(f"L1: [{L2}]\nL2: [{L3}]")
    pull = await open_pull(bot, github, "docs/b.md")
    assert await states(bot, L2) == ["skipped_paths", "sent"]
    await bot.list_backends(f"L2: [{L3}]")
    bot.clock.advance(5)
    github.set_permission(UPSTREAM, "maintainer", "write")
    await github.comment(pull, f"/oot run {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert await states(bot, L2) == ["skipped_paths", "sent"]


async def test_a_list_of_a_later_head_says_nothing_of_an_earlier_one(bot, github):
    await bot.list_backends(BY_PATHS)
    pull = await github.open_pull(UPSTREAM, files=["docs/a.md"])
    pull.files, pull.head_sha = ("docs/b.md",), "b" * 40
    pull.repo.commits["b" * 40] = pull.repo.commits[pull.commits[0]]
    await bot.settle()
    assert dispatched_to(github) == [L2]


async def test_a_renamed_file_counts_by_both_names(bot, github):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, "docs/moved.cpp")
    assert dispatched_to(github) == []
    pull = await github.open_pull(UPSTREAM, files=["docs/a.cpp"])
    pull.renamed["docs/a.cpp"] = "torch/csrc/a.cpp"
    await bot.settle()
    assert dispatched_to(github) == [L2]


@pytest.mark.parametrize(
    ("terms", "labels", "rule"),
    [
        ("labels: [gpu, npu]", ["NPU"], None),
        ("labels: [gpu, npu]", ["cpu"], "labels"),
        ("not_labels: [wip]", ["cpu"], None),
        ("not_labels: [wip]", ["cpu", "WIP"], "not_labels"),
        ("labels: gpu, not_labels: wip", ["gpu", "wip"], "not_labels"),
        ("branches: [main]", [], None),
        ('branches: ["release/*"]', [], "branches"),
    ],
)
async def test_labels_and_branches_decide(bot, github, terms, labels, rule):
    await bot.list_backends(entry(terms))
    await open_pull(bot, github, labels=labels)
    assert dispatched_to(github) == ([] if rule else [L2])
    assert await states(bot, L2) == [f"skipped_{rule}" if rule else "sent"]
    assert asked_for_files(github) == []


async def test_a_label_that_is_added_or_removed_later_decides_again(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, labels: [gpu]}}, {{repo: {L3}, not_labels: [wip]}}]")
    pull = await open_pull(bot, github, labels=["wip"])
    assert dispatched_to(github) == []
    bot.clock.advance(5)
    await github.label(pull, "gpu")
    await bot.settle()
    assert dispatched_to(github) == [L2]
    bot.clock.advance(5)
    await github.unlabel(pull, "wip")
    await github.unlabel(pull, "gpu")
    await bot.settle()
    assert dispatched_to(github) == [L2, L3]


async def test_a_draft_is_run_once_it_is_ready(bot, github):
    await bot.list_backends(f"L1: [{L1}]\n{entry('draft: false')}")
    pull = await open_pull(bot, github, draft=True)
    assert dispatched_to(github) == [L1]
    assert await states(bot, L2) == ["skipped_draft"]
    bot.clock.advance(5)
    await github.ready_for_review(pull)
    await bot.settle()
    assert dispatched_to(github, L2) == [L2]


async def test_the_label_of_a_device_overrides_what_its_entry_says(bot, github):
    await bot.list_backends(f"L3: {{npu: {{repo: {L3}, answers: all, paths: {SOURCES}, draft: false}}}}")
    pull = await open_pull(bot, github, "docs/a.md", draft=True)
    assert dispatched_to(github) == []
    bot.clock.advance(5)
    await github.label(pull, "ciflow/oot/npu")
    await bot.settle()
    assert dispatched_to(github) == [L3]
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "queued"


async def test_a_command_overrides_it_as_well(bot, github):
    await bot.list_backends(BY_PATHS)
    github.set_permission(UPSTREAM, "maintainer", "write")
    pull = await open_pull(bot, github, "docs/a.md")
    bot.clock.advance(5)
    await github.comment(pull, f"/oot run {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert dispatched_to(github) == [L2]


@pytest.mark.parametrize(
    ("files", "sent"), [({"torch/csrc/a.cpp": "x"}, True), ({"docs/a.md": "x"}, False), ({}, True)]
)
async def test_a_push_is_judged_by_the_files_of_its_commits(bot, github, files, sent):
    """Which a merge does not list: it is run."""
    await bot.list_backends(entry(f"events: [push], paths: {SOURCES}"))
    await github.push(UPSTREAM, files=files)
    await bot.settle()
    assert dispatched_to(github) == ([L2] if sent else [])
    assert asked_for_files(github) == []


async def test_a_new_branch_is_run(bot, github):
    await bot.list_backends(entry(f"events: [push], paths: {SOURCES}"))
    await github.push(UPSTREAM, "release/1", files={"docs/a.md": "x"})
    await bot.settle()
    assert dispatched_to(github) == [L2]


async def test_a_sample_of_pushes_is_the_same_for_every_backend(bot, github):
    await bot.list_backends(f"""
    L2:
    - {{repo: {L2}, events: [push], sample: 30%}}
    - {{repo: {L3}, events: [push], sample: 30%}}
    """)
    for _ in range(40):
        await github.push(UPSTREAM)
    await bot.settle()
    first, second = await states(bot, L2), await states(bot, L3)
    assert 3 <= first.count("sent") <= 22
    assert set(first) == {"sent", "skipped_sample"}
    rows = await bot.rows("oot_dispatch")
    sent = {
        name: {row["head_sha"] for row in rows if row["backend"] == name and row["state"] == "sent"}
        for name in (L2, L3)
    }
    assert sent[L2] == sent[L3]
    assert len(first) == len(second) == 40


async def test_what_was_skipped_is_not_sent_by_a_second_delivery(bot, github):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, "docs/a.md")
    for delivery in list(github.deliveries):
        await github.redeliver(delivery)
    await bot.settle()
    assert await states(bot, L2) == ["skipped_paths"]
