"""Statements for SQLite's driver: those that are put together once are also compiled once.

SQLAlchemy takes about 100 us to run a statement that SQLite runs in ten: it looks the compiled form up, makes a
context, binds the parameters anew and describes the columns of the result. For a statement that is run a second time,
all that is found out once and kept. SQLAlchemy still runs what needs more of it, such as defaults computed in Python.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import replacement_traverse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Processor = Callable[[Any], Any]

MOST_SHAPES = 100  # of one statement: which columns are given, and how many values each of its lists has
MOST_VALUES = 1_000  # of a list; SQLite takes 32,766 parameters in all
KINDS = (sa.Select, sa.CompoundSelect, sa.Insert, sa.Update, sa.Delete)
WORD = re.compile("[a-z_]{0,40}")  # a state, as our own code names them
# whether there are many rows, the names of the parameters, the lengths of the lists
Shape = tuple[bool, tuple[str, ...], tuple[int, ...]]


class Unprepared(Exception):
    """A statement, or these parameters of it, are left to SQLAlchemy."""


class Prepared:
    """The SQL of a statement for parameters of one shape, and what is done with their values and with its rows."""

    def __init__(self, statement: Any, dialect: sa.Dialect, given: Mapping[str, Any]) -> None:
        keys = _column_keys(statement, given)
        compiled = _spelled_out(statement, dialect, given).compile(dialect=dialect, column_keys=keys)
        if not isinstance(compiled, SQLCompiler) or _needs_more(compiled):
            raise Unprepared
        try:
            state = compiled.construct_expanded_state(dict(given))
        except sa.exc.InvalidRequestError as error:  # a value is missing
            raise Unprepared from error
        self.sql = state.statement
        # public only once a statement has been run; a list's values have processors of their own
        processors: dict[str, Any] = {**compiled._bind_processors, **state.processors}  # noqa: SLF001
        lists = {
            one: (name, place)
            for name, several in state.parameter_expansion.items()
            for place, one in enumerate(several)
        }
        # place, name, place in the list, and within a row of it where it is one of rows
        self._lists: list[tuple[int, str, int, int | None, Processor | None]] = []
        self._values: list[tuple[int, str, Processor | None]] = []
        self._constants: list[Any] = []
        for place, name in enumerate(state.positiontup or ()):
            processor = processors.get(name)
            self._constants.append(None)
            if name in lists:
                whole, at = lists[name]
                if (key := compiled.binds[whole].key) not in given:
                    value = state.additional_parameters[name]
                    self._constants[place] = processor(value) if processor else value
                    continue
                width = len(given[key][0]) if isinstance(given[key][0], tuple) else 0
                row, column = divmod(at, width) if width else (at, None)
                self._lists.append((place, key, row, column, processor))
            elif (key := compiled.binds[name].key) in given:
                self._values.append((place, key, processor))
            else:
                bound = compiled.binds[name]
                if bound.required or bound.callable:
                    raise Unprepared
                self._constants[place] = processor(bound.value) if processor else bound.value
        # of the caller's own statement: rows are read by its columns; public only for one that was run
        columns = statement.compile(dialect=dialect, column_keys=keys)._result_columns  # noqa: SLF001
        self.names = tuple(one.keyname for one in columns)  # empty: it returns no rows
        self.described = SimpleResultMetaData(self.names, extra=[tuple(one.objects) for one in columns])
        kinds = [one.type.dialect_impl(dialect).result_processor(dialect, None) for one in columns]
        self._processors = [(place, kind) for place, kind in enumerate(kinds) if kind]

    def bound(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the values in their order, as the driver takes them."""
        values = self._constants.copy()
        for place, name, processor in self._values:
            value = given[name]
            values[place] = value if processor is None else processor(value)
        for place, name, row, column, processor in self._lists:
            value = given[name][row] if column is None else given[name][row][column]
            values[place] = value if processor is None else processor(value)
        return values

    def read(self, found: list[tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
        """Return rows with their values as their columns' types say."""
        if not self._processors:
            return found
        made = []
        for row in found:
            values = list(row)
            for place, processor in self._processors:
                values[place] = processor(values[place])
            made.append(values)
        return made


def _spelled_out(statement: Any, dialect: sa.Dialect, given: Mapping[str, Any]) -> Any:
    """Return a statement that has the words it compares with in its text, where they are not parameters of ours.

    SQLite can use a partial index for a state that is a parameter only by compiling the statement again for each value,
    which takes longer than running most of them.
    """

    def written(element: Any, **_: Any) -> Any:
        if not isinstance(element, sa.BinaryExpression) or element.operator is not operators.eq:
            return None
        word = element.right
        if not isinstance(word, sa.BindParameter) or word.key in given or word.required or word.callable:
            return None
        if type(word.value) is not str or not WORD.fullmatch(word.value):
            return None
        if word.type.dialect_impl(dialect).bind_processor(dialect) is not None:
            return None
        spelled = sa.literal_column(f"'{word.value}'", word.type)
        return sa.BinaryExpression(element.left, spelled, element.operator, element.type)

    return replacement_traverse(statement, {}, written)


def _column_keys(statement: Any, given: Mapping[str, Any]) -> list[str] | None:
    """Return which columns the parameters give; None: what the statement itself says."""
    return list(given) or None if isinstance(statement, sa.Insert | sa.Update) else None


def _needs_more(compiled: SQLCompiler) -> bool:
    return bool(
        compiled.literal_execute_params
        or compiled.escaped_bind_names
        or compiled.implicit_returning
        or getattr(compiled, "insert_prefetch", ())
        or getattr(compiled, "update_prefetch", ())
    )


class Known:
    """A statement that was run before."""

    def __init__(self) -> None:
        self._lists: tuple[str, ...] | None = None  # names of parameters that are lists of any length
        self._shapes: dict[Shape, Prepared | None] = {}  # None: left to SQLAlchemy

    def filled(self, dialect: sa.Dialect, statement: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters, lists made longer by their last value: so there are few lengths to compile for.

        That is the same for IN, the only use of lists. Raises Unprepared for a very long one.
        """
        if self._lists is None:
            found = statement.compile(dialect=dialect, column_keys=_column_keys(statement, given))
            several = getattr(found, "post_compile_params", ())
            self._lists = tuple(one.key for one in several if one.expanding)
        if not self._lists:
            return given
        whole = dict(given)
        for name in self._lists:
            if values := list(given.get(name, ())):
                if len(values) > MOST_VALUES:
                    raise Unprepared
                length = 1 << (len(values) - 1).bit_length()
                whole[name] = values + values[-1:] * (length - len(values))
        return whole

    def prepared(
        self, dialect: sa.Dialect, statement: Any, given: Mapping[str, Any], *, many: bool
    ) -> Prepared:
        """Return what to run for parameters as `filled` returns them; raises Unprepared."""
        lengths = tuple(len(given.get(name, ())) for name in self._lists or ())
        shape = (many, tuple(given), lengths)
        if shape not in self._shapes:
            if len(self._shapes) >= MOST_SHAPES:
                raise Unprepared
            try:
                self._shapes[shape] = _prepare(dialect, statement, given, many=many)
            except Unprepared:
                self._shapes[shape] = None
        if (found := self._shapes[shape]) is None or (many and self._lists):
            raise Unprepared
        return found


_known: WeakKeyDictionary[Any, Known] = WeakKeyDictionary()


def known(statement: Any) -> Known | None:
    """Return what is known of a statement that was asked for before; None for one that is new, or of another kind."""
    found = _known.get(statement) if isinstance(statement, KINDS) else None
    if found is None and isinstance(statement, KINDS):
        _known[statement] = Known()
    return found


def _prepare(dialect: sa.Dialect, statement: Any, given: Mapping[str, Any], *, many: bool) -> Prepared:
    if isinstance(statement, sa.Insert):
        statement = statement.inline()  # no RETURNING of a key that nobody asked for
    made = Prepared(statement, dialect, given)
    if many and made.names:
        raise Unprepared
    return made
