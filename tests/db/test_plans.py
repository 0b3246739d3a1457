"""Query plans: no statement of a whole story scans a table that only grows."""

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from bot.ingest.tables import records
from tests.harness import L3, L4, UPSTREAM
from tests.serving import SQLITE

GROWING = {
    "delivery",
    "task",
    "oot_dispatch",
    "oot_workflow_job",
    "oot_check",
    "oot_comment",
    "oot_rerun",
    "oot_run",
    *records,
} - {"repository", "installation"}
SCAN = re.compile(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?")
PARTIAL = {
    index.name
    for table in metadata.tables.values()
    for index in table.indexes
    if index.dialect_options["sqlite"]["where"] is not None
}
ALLOWED = (
    re.compile(r"FROM task$"),  # the harness, to know what is due
    # prune, once a day, in a snapshot
    re.compile(r"\.received_at < \?( AND \w+\.state IS NOT \?| AND NOT \(EXISTS .*\))? LIMIT"),
    re.compile(r"sum\(length\(delivery\.body\)\) OVER"),  # the same, once an hour: the bytes of strangers
    # ends at the first
    re.compile(r"^SELECT delivery\.received_at .* ORDER BY delivery\.received_at DESC LIMIT"),
)
PAGES = (
    "/oot", "/oot?days=90", f"/oot/{L4}", f"/oot/{L4}?tab=trunk", "/oot/metrics", "/oot/levels", f"/{UPSTREAM}/pull/1",
    "/api/oot/summary", f"/api/oot/backends/{L4}", f"/api/oot/pulls/{UPSTREAM}/1", "/metrics", "/readyz",
    f"/api/records/workflow_job/{L4}", f"/api/records/pull_request/{UPSTREAM}/1",
    "/api/admin/deliveries?state=parked", "/api/admin/tasks?state=dead",
)  # fmt: skip


@pytest.fixture
def statements():
    """Every statement the bot runs from now on, with parameters of one run."""
    seen = {}

    def note(_conn, _cursor, statement, parameters, _context, many):
        text = " ".join(statement.split())
        if text.startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            seen.setdefault(text, parameters[0] if many else parameters)

    # pages are read through another engine than the rest
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield seen
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


@SQLITE
async def test_what_a_backend_never_answered_is_found_by_its_own_index(bot, github, statements):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert (await bot.get(f"/oot/{L4}"))[0] == 200
    asked = [(text, told) for text, told in statements.items() if "oot_dispatch.state IN ('failed'," in text]
    assert len(asked) == 1
    async with bot.store.read() as tx:
        for text, told in asked:
            plan = [row[3] for row in await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", told)]
            index = "USING INDEX ix_oot_dispatch_unanswered (backend_key=? AND created_at>?)"
            assert f"SEARCH oot_dispatch {index}" in plan
            assert not any("TEMP B-TREE FOR ORDER BY" in step for step in plan), plan


@SQLITE
async def test_who_has_yet_to_report_is_looked_for_among_those_who_may(bot, github, statements):
    await github.open_pull(UPSTREAM)
    await bot.wait(120)
    asked = [(text, told) for text, told in statements.items() if "oot_dispatch.dispatched_at <" in text]
    assert asked
    async with bot.store.read() as tx:
        for text, told in asked:
            plan = [row[3] for row in await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", told)]
            assert any("USING INDEX ix_oot_dispatch_awaited (state=?" in step for step in plan), plan


@SQLITE
async def test_what_a_pull_request_asks_for_is_not_looked_for_in_all_of_its_repository(
    bot, github, statements
):
    pull = await github.open_pull(UPSTREAM)
    await github.label(pull, "bug")
    await bot.settle()
    for words, step in (
        (
            "LEFT OUTER JOIN pull_head",
            "SEARCH pull_request USING INDEX ix_pull_request_head_sha (head_sha=?)",
        ),
        ("oot_check.head_sha IN", "SEARCH oot_check USING INDEX ix_oot_check_head (head_sha=?)"),
        (
            "pull_label_event.pull_request_number =",
            "SEARCH pull_label_event USING INDEX ix_pull_label_event_number (pull_request_number=?)",
        ),
        (
            "(pull_label_event.repository_id, pull_label_event.guid) IN",
            "SEARCH pull_label_event USING INDEX sqlite_autoindex_pull_label_event_1 (repository_id=? AND guid=?)",
        ),
    ):
        asked = [(text, told) for text, told in statements.items() if words in text]
        assert asked, words
        async with bot.store.read() as tx:
            for text, told in asked:
                plan = [row[3] for row in await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", told)]
                assert step in plan, plan


@SQLITE
async def test_a_later_attempt_is_looked_for_among_those_of_the_same_job_alone(bot, github, statements):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    for attempt in (1, 2):
        assert (await bot.report(bot.dispatch(L4), run_id="900", attempt=attempt))[0] == 200
    await bot.settle()
    assert (await bot.get(f"/oot/{L4}"))[0] == 200
    job = "run_id=? AND job_name=? AND workflow_name=? AND delivery_id=?"
    marked, counted = "oot_workflow_job.run_id, oot_workflow_job.job_name", "other.run_attempt >="
    for words, table, found in (
        (marked, "oot_workflow_job", job),
        (counted, "other", f"{job} AND run_attempt>?"),
    ):
        asked = [(text, told) for text, told in statements.items() if words in text and " WHERE " in text]
        assert asked, words
        async with bot.store.read() as tx:
            for text, told in asked:
                plan = [row[3] for row in await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", told)]
                assert f"SEARCH {table} USING INDEX ix_oot_workflow_job_run ({found})" in plan, plan


@SQLITE
async def test_a_commit_is_verified_without_a_look_at_the_failed_tests_reported_on_it(bot, statements):
    Path(bot.context.settings.allowlist).write_text(f"L2: [{{repo: {L4}, events: nightly}}]")
    await bot.wait(61)
    said = {
        "status": "completed",
        "conclusion": "failure",
        "name": "nightly",
        "job_name": "all",
        "run_id": "9",
    }
    body = {
        "event_type": "nightly",
        "delivery_id": "f" * 40,
        "workflow": said | {"failed_tests": [{"name": "a"}]},
    }
    token = bot.issuer.mint(repository=L4, run_id="9", run_attempt=1)
    headers = {"Authorization": f"Bearer {token}"}
    assert (await bot.request("POST", "/api/oot/callback", json=body, headers=headers))[0] == 200
    statements.clear()
    await bot.settle(horizon=60)
    asked = [text for text in statements if "oot_workflow_job.flags" in text]
    assert asked
    assert not [text for text in asked if "failed_tests_json" in text]
    await bot.settle(horizon=120)  # until then GitHub may not know the commit yet
    (row,) = await bot.rows("oot_workflow_job")
    assert "refused" in row["flags"]


@SQLITE
async def test_no_statement_looks_through_a_table_that_grows(bot, github, statements):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for backend, label in ((L4, None), (L3, "ciflow/oot/npu")):
        if label:
            await github.label(pull, label)
        run = await github.start_run(backend, event="repository_dispatch", name="CI")
        job = await github.start_job(run, "build")
        await bot.settle()
        for word in ("in_progress", "completed"):
            sent = {"status": word, "conclusion": "failure", "run_id": str(run.id)}
            assert (await bot.report(bot.dispatch(backend), **sent))[0] == 200
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")
        await bot.settle(horizon=60)
    await github.comment(pull, "/oot rerun", "octocat")
    await bot.settle(horizon=60)
    await github.push_commit(pull)
    await bot.wait(2 * 86_400)
    admin = {"Authorization": "Bearer an admin token of ours"}
    for path in PAGES:
        assert (await bot.get(path, headers=admin))[0] == 200, path

    whole = []
    async with bot.store.read() as tx:
        for statement, parameters in dict(statements).items():
            plan = await tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [(found[1], found[2], row[3]) for row in plan if (found := SCAN.match(row[3]))]
            scans = [step for table, index, step in steps if table in GROWING and index not in PARTIAL]
            if scans and not any(known.search(statement) for known in ALLOWED):
                whole.append(f"{scans}: {statement}")
    assert not whole, "\n".join(whole)
    assert len(statements) > 100
