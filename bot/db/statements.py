"""What a transaction needs of a database connection, on either database, and statements that run often.

On SQLite their SQL is compiled by SQLAlchemy once, and then given to the driver.
"""

from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.sql.compiler import ExpandedState

    Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None

    Processor = Callable[[Any], Any]

    Element = sa.Select[Any] | sa.CompoundSelect[Any] | sa.Insert | sa.Update | sa.Delete

T = TypeVar("T")
MOST_TEXTS = 100  # of one statement, by the lengths of its lists
STEP = 1_000  # to which longer lists are filled up; SQLite takes 32,766 parameters in all
WORD = re.compile("[a-z_]*")  # a state, as our own code names them


class Connection(Protocol):
    """A connection to SQLite (`sqlite_engine`) or PostgreSQL (`postgres`)."""

    async def execute(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute a statement once, or for each of several sets of parameters."""
        ...

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Result:
        """Execute a statement in the driver's own SQL."""
        ...

    def stream(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[Result]:
        """Execute a query and yield its rows, `size` at a time."""
        ...

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for SQLAlchemy's connection."""
        ...

    def begin(self) -> AbstractAsyncContextManager[None]:
        """Commit at the end, or roll back on any error."""
        ...

    def attempt(self) -> AbstractAsyncContextManager[None]:
        """Let one statement fail without ending the transaction."""
        ...


class Engine(Protocol):
    """The connections to a database."""

    def connect(
        self, *, reads: bool = False, answer_within: float
    ) -> AbstractAsyncContextManager[Connection]:
        """Yield a connection, to read one snapshot or to write.

        What is not committed at the end is rolled back. On PostgreSQL it fails after `answer_within` seconds without
        an answer.
        """
        ...

    def hang_up(self) -> None:
        """Drop the connections in use that wait for a server: nothing that was begun on them is committed."""
        ...

    async def dispose(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement, all of them, and how many rows it changed."""

    names: tuple[str, ...]  # of the columns; empty where it returns no rows
    rows: Sequence[Any]  # tuples whose fields have these names
    rowcount: int

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def all(self) -> list[Any]:
        """Return the rows."""
        return list(self.rows)

    def first(self) -> Any:
        """Return the first row, None without any."""
        return self.rows[0] if self.rows else None

    def one(self) -> Any:
        """Return the only row; raises NoResultFound or MultipleResultsFound."""
        if not self.rows:
            raise sa.exc.NoResultFound("a row was required")
        return self.one_or_none()

    def one_or_none(self) -> Any:
        """Return the only row, None without any; raises MultipleResultsFound."""
        if len(self.rows) > 1:
            raise sa.exc.MultipleResultsFound("one row at most was expected")
        return self.first()

    def scalar(self) -> Any:
        """Return the first value of the first row, None without any."""
        return self.rows[0][0] if self.rows else None

    def scalar_one(self) -> Any:
        """Return the first value of the only row; raises NoResultFound or MultipleResultsFound."""
        return self.one()[0]

    def scalars(self) -> list[Any]:
        """Return the first value of each row."""
        return [row[0] for row in self.rows]

    def mappings(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        names = self.names
        return [dict(zip(names, row)) for row in self.rows]  # noqa: B905 - as many, by construction


def fetch_all(cursor: sa.CursorResult[Any]) -> Result:
    """Return what SQLAlchemy has run, with all its rows."""
    if not cursor.returns_rows:
        return Result((), (), cursor.rowcount)
    return Result(tuple(cursor.keys()), cursor.all(), cursor.rowcount)


def encode_json(value: Any) -> str:
    """Return a value as the JSON text that is stored."""
    return msgspec.json.encode(value).decode()


JSON_TEXT: dict[str, Any] = {"json_serializer": encode_json, "json_deserializer": msgspec.json.decode}
SQLITE: sa.Dialect = sqlite.dialect(**JSON_TEXT)


def literal_word(word: str) -> sa.ColumnClause[str]:
    """Return a word as a literal of the SQL, for states that partial indexes name.

    Where it is a parameter SQLite has to plan the statement again each time to know that it may use such an index.
    """
    if not WORD.fullmatch(word):
        raise ValueError(f"{word!r} is not a word")
    return sa.literal_column(f"'{word}'", sa.Text())


class Statement:
    """A statement to be run often, made at import or by a cached function; `Transaction` runs it as any other.

    Its parameters are `sa.bindparam`s; an INSERT or UPDATE also takes the values of columns by name. A list, given
    for a parameter with `expanding=True`, may have any length.
    """

    def __init__(self, element: Element) -> None:
        if isinstance(element, sa.Insert | sa.Update):
            if any(column.default or column.onupdate for column in element.table.c):
                raise ValueError("a default computed in Python needs SQLAlchemy to run the statement")
            if isinstance(element, sa.Insert):
                element = element.inline()  # no RETURNING of a key that was not asked for
        self.element = element
        self.is_select: bool = element.is_select
        self._takes_columns = isinstance(element, sa.Insert | sa.Update)
        self._compiled: dict[tuple[str, ...], Compiled] = {}

    def compiled(self, given: Mapping[str, Any]) -> Compiled:
        """Return the SQL of SQLite for parameters of these names."""
        names = tuple(given) if self._takes_columns else ()
        if (compiled := self._compiled.get(names)) is None:
            compiled = self._compiled[names] = Compiled(self.element, names)
        return compiled


class RowStatement(Statement, Generic[T]):
    """A query made by `bot.db.rows.select`, to be run often: its rows are those of a row class."""

    def __init__(self, query: sa.Select[T]) -> None:
        super().__init__(query)


class Compiled:
    """A statement for SQLite's driver: its SQL, its parameters in order, and how values are converted."""

    def __init__(self, element: Element, names: Sequence[str]) -> None:
        made = element.compile(dialect=SQLITE, column_keys=list(names) or None)
        assert isinstance(made, SQLCompiler)
        self._compiler = made
        self._lists = tuple(bound.key for bound in made.binds.values() if bound.expanding and bound.required)
        self._texts: dict[tuple[int, ...], _Text] = {}  # by the lengths of the lists
        columns = list(element.exported_columns)
        self.returns_rows = bool(columns)
        processors = [column.type.dialect_impl(SQLITE).result_processor(SQLITE, None) for column in columns]
        self._processors = [(place, processor) for place, processor in enumerate(processors) if processor]
        self.has_lists = bool(self._lists)  # its SQL depends on their lengths
        self._names: tuple[str, ...] = ()
        self._row: Any = None

    def call(self, given: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return the SQL, and its parameters in order; raises StatementError where one is missing.

        Lists are made longer by their last value, which is the same for IN: so there are few lengths.
        """
        try:
            if self._lists:
                given = {**given, **{name: _padded(given[name]) for name in self._lists}}
            lengths = tuple(len(given[name]) for name in self._lists)
            if (text := self._texts.get(lengths)) is None:
                if len(self._texts) >= MOST_TEXTS:
                    self._texts.clear()
                text = self._texts[lengths] = _Text(self._compiler, given)
            return text.sql, text.values(given)
        except (KeyError, sa.exc.InvalidRequestError) as error:
            message = f"a value is missing: {error}"
            raise sa.exc.StatementError(message, str(self._compiler), dict(given), error) from error

    def read(self, description: Sequence[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> Result:
        """Return the driver's rows with values as their columns' types say."""
        if self._row is None:
            self._names = tuple(column[0] for column in description)
            self._row = _row_class(self._names)._make
        make, processors = self._row, self._processors
        if not processors:
            return Result(self._names, [make(row) for row in rows], -1)
        made = []
        for row in rows:
            values = list(row)
            for place, processor in processors:
                values[place] = processor(values[place])
            made.append(make(values))
        return Result(self._names, made, -1)


class _Text:
    """The SQL for lists of some lengths, and the places of its parameters."""

    def __init__(self, compiler: SQLCompiler, given: Mapping[str, Any]) -> None:
        state = compiler.construct_expanded_state(dict(given))
        self.sql = state.statement
        self._constants: list[Any] = []
        self._values: list[tuple[int, str, Processor | None]] = []  # place, key
        self._optional: list[tuple[int, str, Processor | None]] = []
        self._lists: list[tuple[int, int, str, list[Processor | None] | None]] = []  # places from and to, key
        lists = {several[0]: name for name, several in state.parameter_expansion.items() if several}
        names = iter(state.positiontup or ())
        for name in names:
            if name not in lists:
                self._add_value(compiler.binds[name])
                continue
            several = state.parameter_expansion[lists[name]]
            for _ in several[1:]:
                next(names)
            self._add_list(compiler.binds[lists[name]], several, state)

    def _add_value(self, bound: sa.BindParameter[Any]) -> None:
        place = len(self._constants)
        processor = bound.type.dialect_impl(SQLITE).bind_processor(SQLITE)
        if bound.required:
            self._values.append((place, bound.key, processor))
            self._constants.append(None)
            return
        value = bound.effective_value
        self._constants.append(processor(value) if processor else value)
        if not bound.unique:  # a parameter of ours with a default
            self._optional.append((place, bound.key, processor))

    def _add_list(self, bound: sa.BindParameter[Any], names: Sequence[str], state: ExpandedState) -> None:
        place = len(self._constants)
        processors: list[Processor | None] = [state.processors.get(name) for name in names]
        values = [state.parameters[name] for name in names]
        if bound.required:
            whole = processors if any(processors) else None
            self._lists.append((place, place + len(names), bound.key, whole))
        else:
            values = _processed(values, processors)
        self._constants += values

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in their order, as the driver takes them."""
        made = self._constants.copy()
        for place, key, processor in self._values:
            value = given[key]
            made[place] = value if processor is None else processor(value)
        for place, key, processor in self._optional:
            if key in given:
                made[place] = given[key] if processor is None else processor(given[key])
        for start, end, key, processors in self._lists:
            several = given[key]
            flat = several if len(several) == end - start else [value for row in several for value in row]
            if processors is not None:
                flat = _processed(flat, processors)
            made[start:end] = flat
        return made


def _processed(values: Sequence[Any], processors: Sequence[Processor | None]) -> list[Any]:
    pairs = zip(processors, values, strict=True)
    return [value if processor is None else processor(value) for processor, value in pairs]


def _padded(values: Collection[Any]) -> list[Any]:
    """Pad values with the last one to a power of two or a multiple of STEP."""
    whole = list(values)
    if whole:
        length = 1 << (len(whole) - 1).bit_length()
        if length > STEP:
            length = -(-len(whole) // STEP) * STEP
        whole += whole[-1:] * (length - len(whole))
    return whole


def _row_class(names: tuple[str, ...]) -> Any:
    """Return a class of tuples with these field names, where Python allows them."""
    make: Any = namedtuple  # noqa: PYI024 - the names are known only now
    return make("Row", names, rename=True)
