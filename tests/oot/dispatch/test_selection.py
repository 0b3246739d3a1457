"""Backends run only what is worth running: by files, labels, drafts, branches and samples; the gate, equal trees, the cost."""

import gc
import time

import pytest

from bot.demo.github import git
from tests.flows.scenarios import dispatched_to, reasons, states
from tests.harness import L1, L2, L3, L4, UPSTREAM
from tests.oot.dispatch.selected import (
    SKIPPED,
    SOURCES,
    asked_for_files,
    blocking,
    entry,
    explained,
    open_pull,
    push_files,
)

BY_PATHS = entry(f"paths: {SOURCES}")


@pytest.mark.logic
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


@pytest.mark.logic
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


@pytest.mark.logic
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


@pytest.mark.logic
@pytest.mark.parametrize(("count", "sent"), [(3_000, False), (3_001, True)])
async def test_more_files_than_github_lists_are_run(bot, github, count, sent):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, *(f"docs/{one}.md" for one in range(count)))
    assert bool(dispatched_to(github)) is sent
    assert len(asked_for_files(github)) == (0 if sent else 30), "all pages of a hundred, or none"


@pytest.mark.logic
async def test_what_github_does_not_tell_keeps_no_backend_from_running(bot, github):
    await bot.list_backends(BY_PATHS)
    github.faults.add(method="GET", path="/files", status=403, body={"message": "No"}, times=50)
    await open_pull(bot, github, "docs/a.md")
    await bot.settle(horizon=60)
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
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


@pytest.mark.logic
@pytest.mark.nightly
async def test_files_that_github_never_knows_are_run_after_two_minutes(bot, github):
    await bot.list_backends(BY_PATHS)
    github.faults.add(method="GET", path="/files", status=404, times=50)
    await open_pull(bot, github, "docs/a.md")
    assert dispatched_to(github) == []
    await bot.wait(150)  # it is asked every half a minute at last
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
@pytest.mark.parametrize(("branch", "sent"), [("main", False), ("release/1", True), ("release/1/x", False)])
async def test_pushes_to_other_branches_are_not_run(bot, github, branch, sent):
    await bot.list_backends(entry('events: [push], branches: ["release/?"]'))
    await github.push(UPSTREAM, branch)
    await bot.settle()
    assert await states(bot, L2) == ["sent" if sent else "skipped_branches"]


@pytest.mark.logic
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


@pytest.mark.logic
async def test_a_list_of_a_later_head_says_nothing_of_an_earlier_one(bot, github):
    await bot.list_backends(BY_PATHS)
    pull = await github.open_pull(UPSTREAM, files=["docs/a.md"])
    pull.files, pull.head_sha = ("docs/b.md",), "b" * 40
    pull.repo.commits["b" * 40] = pull.repo.commits[pull.commits[0]]
    await bot.settle()
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
async def test_a_renamed_file_counts_by_both_names(bot, github):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, "docs/moved.cpp")
    assert dispatched_to(github) == []
    pull = await github.open_pull(UPSTREAM, files=["docs/a.cpp"])
    pull.renamed["docs/a.cpp"] = "torch/csrc/a.cpp"
    await bot.settle()
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
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


@pytest.mark.logic
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


@pytest.mark.logic
async def test_a_draft_is_run_once_it_is_ready(bot, github):
    await bot.list_backends(f"L1: [{L1}]\n{entry('draft: false')}")
    pull = await open_pull(bot, github, draft=True)
    assert dispatched_to(github) == [L1]
    assert await states(bot, L2) == ["skipped_draft"]
    bot.clock.advance(5)
    await github.ready_for_review(pull)
    await bot.settle()
    assert dispatched_to(github, L2) == [L2]


@pytest.mark.logic
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


@pytest.mark.logic
async def test_a_command_overrides_it_as_well(bot, github):
    await bot.list_backends(BY_PATHS)
    github.set_permission(UPSTREAM, "maintainer", "write")
    pull = await open_pull(bot, github, "docs/a.md")
    bot.clock.advance(5)
    await github.comment(pull, f"/oot run {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
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


@pytest.mark.logic
async def test_a_new_branch_is_run(bot, github):
    await bot.list_backends(entry(f"events: [push], paths: {SOURCES}"))
    await github.push(UPSTREAM, "release/1", files={"docs/a.md": "x"})
    await bot.settle()
    assert dispatched_to(github) == [L2]


@pytest.mark.logic
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


@pytest.mark.logic
async def test_what_was_skipped_is_not_sent_by_a_second_delivery(bot, github):
    await bot.list_backends(BY_PATHS)
    await open_pull(bot, github, "docs/a.md")
    for delivery in list(github.deliveries):
        await github.redeliver(delivery)
    await bot.settle()
    assert await states(bot, L2) == ["skipped_paths"]


PASSES = blocking(f"paths: {SOURCES}, paths_pass: true, confirm: false")


def gate(bot, sha):
    return bot.checks(UPSTREAM, sha)["oot / gate"]


@pytest.mark.logic
async def test_the_paths_of_a_blocking_backend_are_ignored(bot, github):
    await bot.list_backends(blocking(f"paths: {SOURCES}"))
    pull = await open_pull(bot, github, "docs/a.md")
    assert dispatched_to(github) == [L4]
    assert asked_for_files(github) == []
    assert gate(bot, pull.head_sha)[:2] == ("in_progress", None)


@pytest.mark.logic
async def test_the_gate_passes_without_a_backend_whose_entry_says_so(bot, github):
    await bot.list_backends(PASSES)
    pull = await open_pull(bot, github, "docs/a.md")
    await bot.settle(horizon=30)
    assert dispatched_to(github) == []
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert checks["oot / gate"] == ("completed", "success", "1 blocking backend not needed")
    assert checks["oot / tpu"] == ("completed", "skipped", "not needed: no file of interest changed")
    sha = await push_files(bot, github, pull, "docs/a.md", "torch/csrc/a.cpp")
    assert dispatched_to(github) == [L4]
    assert gate(bot, sha)[:2] == ("in_progress", None)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=30)
    assert gate(bot, sha) == ("completed", "failure", "tpu failed")


@pytest.mark.logic
async def test_once_the_entry_no_longer_says_so_the_gate_waits(bot, github):
    await bot.list_backends(PASSES)
    pull = await open_pull(bot, github, "docs/a.md")
    await bot.list_backends(blocking(f"paths: {SOURCES}"))
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[:2] == ("in_progress", None)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "not sent yet" in page
    await github.close(pull)
    bot.clock.advance(5)
    await github.reopen(pull)
    await bot.settle(horizon=30)
    assert dispatched_to(github) == [L4], "the next event is dispatched to it"


@pytest.mark.logic
async def test_a_backend_that_came_to_block_after_it_was_skipped_keeps_the_gate_waiting(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L4}, labels: [gpu]}}]")
    pull = await open_pull(bot, github)
    assert await states(bot, L4) == ["skipped_labels"]
    await bot.list_backends(PASSES)
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha) == ("in_progress", None, f"waiting for {L4}")


@pytest.mark.logic
async def test_the_gate_waits_for_a_backend_that_runs_no_drafts(bot, github):
    await bot.list_backends(blocking("draft: false, confirm: false"))
    pull = await open_pull(bot, github, draft=True)
    assert gate(bot, pull.head_sha) == ("in_progress", None, "waiting for tpu")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == ("queued", None, "not sent yet: it is a draft")
    bot.clock.advance(5)
    await github.ready_for_review(pull)
    await bot.settle()
    assert dispatched_to(github) == [L4]


@pytest.mark.logic
async def test_two_backends_one_of_which_was_not_needed(bot, github):
    await bot.list_backends(f"""
    L4:
      tpu: {{repo: {L4}, paths: ["src/**"], paths_pass: true, confirm: false}}
      npu: {{repo: org/npu-backend, confirm: false}}
    """)
    pull = await open_pull(bot, github, "docs/a.md")
    assert gate(bot, pull.head_sha) == ("in_progress", None, "waiting for npu")
    await bot.report(bot.dispatch("org/npu-backend"))
    await bot.settle(horizon=120)
    assert gate(bot, pull.head_sha) == ("completed", "success", "1 blocking backend passed, 1 not needed")


async def rebased(bot, github, pull):
    """Push another commit with the same files."""
    bot.clock.advance(5)
    made = git.commit(
        pull.repo, at=bot.clock.now(), message="again", author="octocat", parents=(pull.head_sha,)
    )
    await github.push_commit(pull, commit=made.sha)
    await bot.settle()


@pytest.mark.logic
@pytest.mark.parametrize("conclusion", ["success", "failure", None])
async def test_only_a_result_that_has_passed_is_taken_over(bot, github, conclusion):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    if conclusion:
        await bot.report(bot.dispatch(L2), conclusion=conclusion)
        await bot.settle()
    first = pull.head_sha
    await rebased(bot, github, pull)
    taken = conclusion == "success"
    assert (await states(bot, L2))[-1] == ("skipped_tree" if taken else "sent")
    assert len(dispatched_to(github)) == (1 if taken else 2)
    if taken:
        assert f"has passed on commit {first[:7]}" in (await reasons(bot, L2))[-1]
        assert f"/{UPSTREAM}/pull/{pull.number}?sha={first}" in (await reasons(bot, L2))[-1]
        assert await explained(bot, pull) == {L2: ("skipped", "tree")}
        _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
        assert "not needed" in page
        assert first[:7] in page


@pytest.mark.logic
async def test_other_files_are_run(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    bot.clock.advance(5)
    await github.push_commit(pull)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "sent"]


@pytest.mark.logic
async def test_where_github_never_names_the_tree_it_is_run_after_two_minutes(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    github.faults.add(method="GET", path="/commits/", status=404, times=50)
    await rebased(bot, github, pull)
    assert await states(bot, L2) == ["sent"]
    bot.clock.advance(130)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "sent"]


@pytest.mark.logic
@pytest.mark.nightly
async def test_a_commit_may_be_young_though_its_pull_request_is_not(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    await bot.wait(3600)
    github.faults.add(method="GET", path="/commits/", status=422, times=1)
    await rebased(bot, github, pull)
    bot.clock.advance(5)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "skipped_tree"]


@pytest.mark.logic
async def test_where_github_names_the_tree_late_its_result_is_taken_over(bot, github):
    await bot.list_backends(entry("skip_if_same_tree: true"))
    pull = await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), conclusion="success")
    await bot.settle()
    github.faults.add(method="GET", path="/commits/", status=404, times=1)
    await rebased(bot, github, pull)
    bot.clock.advance(5)
    await bot.settle()
    assert await states(bot, L2) == ["sent", "skipped_tree"]


BACKENDS, ROUNDS, MOST = 100, 7, 1.10
FILES = {f"torch/csrc/file{number}.cpp": "x" for number in range(20)}


def listed(paths):
    entries = (f"{{repo: org/b{one}, events: [push]{paths.format(one)}}}" for one in range(BACKENDS))
    return f"L2: [{', '.join(entries)}]"


async def cost(bot, github):
    """Processor seconds of recording one push and sending it everywhere, GitHub's part included."""
    before = len(github.dispatches)
    await github.push(UPSTREAM, files=FILES)
    gc.collect()
    began = time.process_time()
    await bot.settle()
    took = time.process_time() - began
    assert len(dispatched_to(github)) == before + BACKENDS
    return took


@pytest.mark.logic
@pytest.mark.nightly
async def test_a_push_to_many_backends_costs_hardly_more_with_paths(bot, github):
    for one in range(BACKENDS):
        github.add_repo(f"org/b{one}")
        github.install(f"org/b{one}", bot.app)
    plain, selective = listed(""), listed(', paths: ["torch/csrc/**", "!docs/b{0}/**", "!**/*.md"]')
    costs = {plain: [], selective: []}
    for _ in range(ROUNDS):
        for text, seen in costs.items():
            await bot.list_backends(text)
            seen.append(await cost(bot, github))
    first, second = (min(seen) for seen in costs.values())
    assert second <= first * MOST
    assert asked_for_files(github) == []
