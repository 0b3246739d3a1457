"""A row is declared once; what is missing is inserted and what is there is changed, with statements that are built once."""

from typing import TypedDict

import pytest
import sqlalchemy as sa

from bot.db.rows import Json, Millis, Text, select, table
from bot.evidence.collect.tables import ci_storage_day
from bot.jobs.tables import ci_column
from bot.oot.results.tables import ApprovalRow, oot_approval
from tests.db.opened import opened, url_of
from tests.db.repetitions import repetitions

# not rows: values of pure functions and bodies for GitHub that share names with columns, by how many they share
VALUES = {
    "bot/evidence/collect/receivers.py": 16,
    "bot/job_reports/selected_tests.py": 6,
    "bot/job_reports/test_lists/times.py": 3,
    "bot/job_reports/test_lists/suggestions.py": 5,
    "bot/jobs/cells.py": 8,
    "bot/jobs/job_cells.py": 11,
    "bot/oot/culprits/signals.py": 3,
    "bot/oot/culprits/start.py": 5,
    "bot/oot/dispatch/commits.py": 3,
    "bot/pages/pulls/dispatch_explanation.py": 3,
    "bot/pages/backends/dispatches.py": 6,
    "bot/pages/backends/job_rows.py": 3,
    "bot/pages/jobs/run.py": 6,
    "bot/pages/site/search.py": 3,
    "bot/oot/publish/check_text.py": 8,
}


def test_columns_of_tables_are_declared_in_row_classes_only():
    assert repetitions() == VALUES


class Named(TypedDict):
    name: Text


class Thing(Named):
    """A row class put together from a part."""

    seen_at: Millis | None
    labels: Json[list[str]]


THINGS = table("thing", Thing, key=("name",))
THINGS.metadata.remove(THINGS)


class Miscast(TypedDict):
    name: int


class Counted(Named):
    number: int


def test_a_table_has_the_columns_of_its_row_class_in_their_order():
    columns = [(column.name, type(column.type), column.nullable) for column in THINGS.columns]
    assert columns == [("name", sa.Text, False), ("seen_at", sa.BigInteger, True), ("labels", sa.JSON, False)]
    assert [column.name for column in THINGS.primary_key] == ["name"]


def test_a_query_has_the_columns_of_its_row_class_and_what_is_computed():
    assert [column.name for column in select(Named, THINGS).selected_columns] == ["name"]
    counted = select(Counted, THINGS, number=sa.func.count()).selected_columns
    assert [column.name for column in counted] == ["name", "number"]


@pytest.mark.parametrize(
    ("kind", "computed", "problem"),
    [
        (Counted, {}, "Counted.number is in none of thing"),
        (Named, {"age": sa.func.count()}, "Named has no age"),
        (Miscast, {}, "Miscast.name is <class 'int'>, its column holds <class 'str'>"),
    ],
)
def test_a_query_that_its_row_class_does_not_fit_is_refused(kind, computed, problem):
    with pytest.raises(TypeError, match=problem):
        select(kind, THINGS, **computed)


@pytest.mark.logic
async def test_rows_of_a_statement_written_by_hand_are_refused_where_a_column_is_missing(bot):
    approval = dict.fromkeys(("upstream_repo", "head_sha", "login"), "x") | {"pr_number": 1, "created_at": 2}
    async with bot.context.store.transaction() as tx:
        await tx.run(tx.insert(oot_approval).values(approval))
        assert await tx.fetch(select(ApprovalRow, oot_approval)) == [approval]
        assert await tx.rows_as(ApprovalRow, sa.select(oot_approval)) == [approval]
        with pytest.raises(TypeError, match="no login: ApprovalRow has"):
            await tx.rows_as(ApprovalRow, sa.select(*(one for one in oot_approval.c if one.name != "login")))


@pytest.fixture
async def store(database_url, tmp_path, clock):
    async with opened(url_of(database_url, tmp_path), clock) as made:
        yield made


def day(day, *, artifacts=1, size=10):
    return {"repository_id": 1, "day": day, "workflow": "w", "artifacts": artifacts, "bytes": size}


async def written(store, *rows, **changed):
    async with store.transaction() as tx:
        await tx.upsert(ci_storage_day, rows, **changed)
    async with store.read() as tx:
        found = await tx.rows(sa.select(ci_storage_day).order_by(ci_storage_day.c.day))
    return [(row["day"], row["artifacts"], row["bytes"]) for row in found]


async def test_what_is_missing_is_inserted_and_what_is_there_changes_as_asked(store):
    assert await written(store, day(1)) == [(1, 1, 10)]
    assert await written(store, day(1, size=5), day(2)) == [(1, 1, 10), (2, 1, 10)]
    assert await written(store, day(1, artifacts=7, size=5), replaced=("bytes",)) == [(1, 1, 5), (2, 1, 10)]
    assert await written(store, day(1), day(2), added=("artifacts", "bytes")) == [(1, 2, 15), (2, 2, 20)]
    lower_and_higher = (day(1, size=14), day(2, size=21))
    assert await written(store, *lower_and_higher, greatest=("bytes",)) == [(1, 2, 15), (2, 2, 21)]
    mixed = {"replaced": ("artifacts",), "greatest": ("bytes",)}
    assert await written(store, day(2, artifacts=9, size=1), **mixed) == [(1, 2, 15), (2, 9, 21)]


async def test_another_unique_key_may_tell_which_row_it_is(store):
    row = {
        "repository_id": 1,
        "source": "actions",
        "workflow": "w",
        "job": "j",
        "base_name": "",
        "config": "",
        "flags": "",
        "seen": 3,
    }
    async with store.transaction() as tx:
        await tx.upsert(ci_column, [row])
        await tx.upsert(
            ci_column,
            [row | {"seen": 5}],
            greatest=("seen",),
            index=("repository_id", "source", "workflow", "job"),
        )
    async with store.read() as tx:
        assert [one["seen"] for one in await tx.rows(sa.select(ci_column))] == [5]


async def test_what_was_inserted_can_be_told_from_what_was_there(store):
    await written(store, day(1))
    async with store.transaction() as tx:
        done = await tx.upsert(ci_storage_day, [day(1), day(2)], returning=("day",))
        assert list(done.scalars()) == [2]
