"""Does a statement that is compiled once return what SQLAlchemy returns, whatever it is given?"""

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from bot.db.rows import JsonType
from bot.db.sqlite import Session
from bot.db.statements import Statement, literal_word

metadata = sa.MetaData()
job = sa.Table(
    "job", metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("green", sa.Boolean),
    sa.Column("steps", JsonType),
    sa.Column("seen", sa.Integer, nullable=False, server_default="0"),
)  # fmt: skip
label = sa.Table(
    "label", metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("colour", sa.Text, nullable=False),
)  # fmt: skip
J = job.c
ROWS = [
    {"id": 1, "name": "build", "green": True, "steps": [{"a": 1}]},
    {"id": 2, "name": "test", "green": False, "steps": None},
    {"id": 3, "name": "lint", "green": None, "steps": {"b": []}},
]
IDS = sa.bindparam("ids", expanding=True)
OTHER = job.alias("other")
# name: the statement, and the parameters of three runs
READS = {
    "values of every type": (sa.select(job).order_by(J.id), [None, {}, None]),
    "a list of any length": (sa.select(J.name).where(J.id.in_(IDS)), [{"ids": [1]}, {"ids": []}, {"ids": [3, 1, 2]}]),
    "a list of rows": (
        sa.select(J.name).where(sa.tuple_(J.id, J.name).in_(IDS)).order_by(J.id),
        [{"ids": [(1, "build")]}, {"ids": [(2, "test"), (3, "lint"), (1, "no")]}, {"ids": [(9, "x"), (3, "lint")]}],
    ),
    "a list of constants": (sa.select(J.name).where(J.name.in_(["lint", "test"]), J.id > sa.bindparam("after")),
        [{"after": 0}, {"after": 2}, {"after": 9}]),
    "a parameter beside a constant": (
        sa.select(J.id, (J.seen + 5).label("sum")).where(J.name == sa.bindparam("named")),
        [{"named": "test"}, {"named": "lint"}, {"named": "no"}],
    ),
    "a parameter with a default": (
        sa.select(J.id).where(J.id > sa.bindparam("least", 1)).limit(sa.bindparam("most", 5, sa.Integer)),
        [{}, {"least": 2}, {"most": 1}],
    ),
    "a boolean and a document as parameters": (
        sa.select(J.id).where(J.green == sa.bindparam("green", type_=sa.Boolean)),
        [{"green": True}, {"green": False}, {"green": None}],
    ),
    "columns of one name": (sa.select(J.id, OTHER.c.id).where(OTHER.c.id == J.id), [None, None, None]),
    "parts put together": (sa.select(J.id).union_all(sa.select(J.seen)), [None, None, None]),
    "more than the statement asks for": (sa.select(J.id), [{"unknown": 1}, {"unknown": 2}, {}]),
}  # fmt: skip
UPSERT = sqlite.insert(job)
UPSERT = UPSERT.on_conflict_do_update(
    index_elements=["id"], set_={"seen": J.seen + 1, "name": UPSERT.excluded.name}
)
WRITES = {
    "rows inserted or changed": (UPSERT, [ROWS[:1], ROWS, [{**ROWS[0], "name": "new"}]]),
    "one row": (UPSERT, [{"id": 8, "name": "x"}, {"name": "y", "id": 9, "green": True}, {"id": 8, "name": "z"}]),
    "a change of what is listed": (
        sa.update(job).where(J.id.in_(IDS)).values(name=sa.bindparam("renamed"), seen=J.seen + 1),
        [{"ids": [1, 2], "renamed": "a"}, {"ids": [], "renamed": "b"}, {"ids": [3], "renamed": "c"}],
    ),
    "several changes": (
        sa.update(job).where(J.id == sa.bindparam("key")).values(steps=sa.bindparam("steps"), green=sa.bindparam("green")),
        [[{"key": 1, "steps": [1], "green": False}, {"key": 2, "steps": None, "green": True}]] * 3,
    ),
    "what was written is returned": (
        sa.update(job).where(J.id > sa.bindparam("after")).values(seen=7).returning(J.id, J.steps),
        [{"after": 0}, {"after": 2}, {"after": 5}],
    ),
    "a deletion": (sa.delete(job).where(J.id == sa.bindparam("key")), [{"key": 1}, {"key": 1}, {"key": 2}]),
}  # fmt: skip


@pytest.fixture
def conn():
    engine = sa.create_engine("sqlite://")
    with engine.connect() as opened:
        metadata.create_all(opened)
        opened.execute(sa.insert(job), ROWS)
        opened.commit()
        yield opened
    engine.dispose()


@pytest.mark.parametrize("name", READS)
def test_rows_are_those_of_sqlalchemy(conn, name):
    element, runs = READS[name]
    statement = Statement(element)
    for given in runs:
        expected = conn.execute(element, given)
        found = Session(conn).execute(statement, given)
        assert found.names == tuple(expected.keys())
        rows = expected.all()
        assert found.all() == rows
        assert found.mappings() == [dict(zip(expected.keys(), row, strict=True)) for row in rows]


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_is_the_same_as_by_sqlalchemy(conn, name):
    element, runs = WRITES[name]
    statement = Statement(element)
    everything = sa.select(job).order_by(J.id)
    for given in runs:
        before = conn.begin_nested()
        plain = conn.execute(element, given)
        returned = plain.all() if plain.returns_rows else None
        expected = (plain.rowcount if returned is None else returned, conn.execute(everything).all())
        before.rollback()
        made = Session(conn).execute(statement, given)
        got = made.rowcount if returned is None else made.all()
        assert (got, conn.execute(everything).all()) == expected


def test_a_literal_word_is_in_the_text_and_a_parameter_is_not(conn):
    named = J.name == sa.bindparam("named")
    sql, values = (
        Statement(sa.select(J.id).where(J.name == literal_word("waiting"), named))
        .compiled({})
        .call({"named": "it's"})
    )
    assert "job.name = 'waiting' AND job.name = ?" in sql
    assert values == ["it's"]


@pytest.mark.parametrize("text", ["it's", "Waiting", "É", "a b"])
def test_only_a_word_is_written_into_the_text(text):
    with pytest.raises(ValueError, match="not a word"):
        literal_word(text)


def test_what_is_written_is_never_in_the_text(conn):
    statement = Statement(
        sa.update(job).where(J.name == sa.bindparam("named")).values(steps="waiting", name="done")
    )
    sql, values = statement.compiled({}).call({"named": "waiting"})
    assert "SET name=?, steps=? WHERE job.name = ?" in sql
    assert values == ["done", '"waiting"', "waiting"]


def test_a_row_whose_key_is_a_name_is_inserted_each_time(conn):
    statement = Statement(sa.insert(label).values(colour="red"))
    for name in "abc":
        Session(conn).execute(statement, {"name": name})
    assert Session(conn).execute(sa.select(label.c.name)).scalars() == ["a", "b", "c"]


def test_several_rows_return_what_each_has_written(conn):
    statement = Statement(sqlite.insert(label).on_conflict_do_nothing().returning(label.c.name))
    rows = [{"name": name, "colour": "red"} for name in "abca"]
    assert Session(conn).execute(statement, rows).scalars() == ["a", "b", "c"]
    assert Session(conn).execute(statement, []).all() == []


def test_rows_are_read_by_name_and_one_by_one(conn):
    statement = Statement(sa.select(J.id, J.name.label("called"), J.green).order_by(J.id))
    for given in (None, {}):
        first, *_ = Session(conn).execute(statement, given)
        assert (first.id, first.called, first.green) == (1, "build", True)
        assert Session(conn).execute(statement).scalars() == [1, 2, 3]
        assert Session(conn).execute(statement).mappings()[0]["called"] == "build"
        with pytest.raises(sa.exc.MultipleResultsFound):
            Session(conn).execute(statement).one()
    nothing = Session(conn).execute(Statement(sa.select(J.id).where(J.id == 9)))
    assert (nothing.first(), nothing.scalar(), nothing.one_or_none()) == (None, None, None)
    with pytest.raises(sa.exc.NoResultFound):
        nothing.scalar_one()


@pytest.mark.parametrize(
    ("element", "good", "bad", "error"),
    [
        (sa.insert(job), {"id": 20, "name": "a"}, {"id": 20, "name": "b"}, sa.exc.IntegrityError),
        (sa.select(sa.func.abs(sa.bindparam("n"))), {"n": 1}, {"n": -(2**63)}, sa.exc.OperationalError),
        (sa.select(J.id).where(J.id == sa.bindparam("key")), {"key": 1}, {}, sa.exc.StatementError),
        (sa.select(J.id).where(J.id.in_(IDS)), {"ids": [1]}, {}, sa.exc.StatementError),
    ],
    ids=["a key that is there", "SQLite refuses", "a value is missing", "a list is missing"],
)
def test_errors_are_those_of_sqlalchemy(conn, element, good, bad, error):
    statement = Statement(element)
    Session(conn).execute(statement, good)
    with pytest.raises(error) as expected:
        conn.execute(element, bad)
    with pytest.raises(error) as found:
        Session(conn).execute(statement, bad)
    assert type(found.value) is type(expected.value)
    if isinstance(expected.value, sa.exc.DBAPIError):
        assert str(found.value.orig) == str(expected.value.orig)


def test_a_listener_hears_every_statement(conn):
    heard = []
    statement = Statement(sa.select(J.name).where(J.id == sa.bindparam("key")))
    Session(conn).execute(statement, {"key": 1})
    sa.event.listen(conn, "before_cursor_execute", lambda *told: heard.append(told[3]))
    assert Session(conn).execute(statement, {"key": 3}).scalar() == "lint"
    assert heard == [(3,)]


def test_a_default_computed_in_python_is_refused():
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, default=lambda: 1))
    with pytest.raises(ValueError, match="default"):
        Statement(sa.insert(table))


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_lists_of_every_length_and_kind_are_whole(conn, kind):
    there = Statement(sa.select(J.id).where(J.id.in_(IDS)).order_by(J.id))
    others = Statement(sa.select(J.id).where(J.id.not_in(IDS)).order_by(J.id))
    for length in (2, 5, 3, 0, 1, 4, 1_500, 7, 5):
        ids = kind(range(2, 2 + length))
        expected = [number for number in (1, 2, 3) if number in ids]
        assert Session(conn).execute(there, {"ids": ids}).scalars() == expected
        rest = [number for number in (1, 2, 3) if number not in ids]
        assert Session(conn).execute(others, {"ids": ids}).scalars() == rest


def test_each_of_several_changes_has_a_list_of_its_own(conn):
    statement = Statement(sa.update(job).where(J.id.in_(IDS)).values(name=sa.bindparam("named")))
    for names in ("abc", "xyz"):
        lists = zip(([1], [2, 3], []), names, strict=True)
        Session(conn).execute(statement, [{"ids": ids, "named": name} for ids, name in lists])
        found = Session(conn).execute(sa.select(J.name).order_by(J.id)).scalars()
        assert found == [names[0], names[1], names[1]]
