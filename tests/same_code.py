"""Compares the code of two checkouts function by function: what else than names and addresses differs?

    python -m tests.same_code OLD NEW [--json]

A function is the same if its instructions and constants are: names, docstrings, and where it stands aside. What each
checkout has alone is listed.
"""

from __future__ import annotations

import ast
import bisect
import dis
import hashlib
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import CodeType

FOLDERS = ("bot", "handlers")
GENERATED = "migrations"
SKIPPED = frozenset({"EXTENDED_ARG", "CACHE", "RESUME", "NOP", "PRECALL", "PUSH_NULL"})
NAMED = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "STORE_NAME", "STORE_ATTR", "STORE_GLOBAL"}
)
CLOSED_OVER = frozenset(
    {"LOAD_DEREF", "STORE_DEREF", "LOAD_CLOSURE", "COPY_FREE_VARS", "MAKE_CELL", "DELETE_DEREF"}
)
ANNOTATIONS = annotations.compiler_flag
ADDRESS = re.compile(r"^(?:bot|handlers)[./]")


class _Plain(ast.NodeTransformer):
    """A module without docstrings and imports, where `module.name` is `name`: a merge takes the module away."""

    def __init__(self, aliases: set[str]) -> None:
        self.aliases = aliases
        self.bound: list[set[str]] = []  # the names of each function around

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._inside(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._inside(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._inside(node)

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.AST:
        if not isinstance(node, ast.Lambda):
            node.returns = None  # types are no code
        inner = list(ast.walk(node))
        stored = {
            name.id for name in inner if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)
        }
        self.bound.append(stored | {argument.arg for argument in inner if isinstance(argument, ast.arg)})
        self.generic_visit(node)
        self.bound.pop()
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if (
            isinstance(node.value, ast.Name)
            and node.value.id in self.aliases
            and not any(node.value.id in names for names in self.bound)
        ):
            return ast.copy_location(ast.Name(id=f"{node.attr} of a module", ctx=node.ctx), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "cast":
            node.args[0] = ast.copy_location(ast.Constant("a type"), node.args[0])
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


def functions(checkout: Path) -> dict[str, list[str]]:
    """Return the places of each function, class body and module of a checkout, by what it does."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    paths = [path for folder in FOLDERS for path in sorted((checkout / folder).rglob("*.py"))]
    modules = {".".join(path.relative_to(checkout).with_suffix("").parts) for path in paths}
    modules |= {name.removesuffix(".__init__") for name in modules}
    for path in paths:
        if GENERATED in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plain = ast.fix_missing_locations(_Plain(_aliases(tree, modules)).visit(tree))
        code = compile(plain, str(path.relative_to(checkout)), "exec", ANNOTATIONS, dont_inherit=True)
        for inner in _codes(code):
            places[_fingerprint(inner)].append(f"{path.relative_to(checkout)}:{inner.co_qualname}")
    return places


def _aliases(tree: ast.Module, modules: set[str]) -> set[str]:
    """Return the names that stand for modules of ours."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in modules
    }


def _codes(code: CodeType) -> list[CodeType]:
    """Return the functions of a module or class, those of its classes included, without what stands inside functions."""
    made = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a class
                made.append(constant)
            else:
                made += _codes(constant)
    return made


def _fingerprint(code: CodeType) -> str:
    return hashlib.sha256(repr(_shape(code)).encode()).hexdigest()


def _shape(code: CodeType) -> tuple[object, ...]:
    """Return all of a function but its names."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in SKIPPED]
    offsets = [step.offset for step in steps]
    targets = (step.offset for step in dis.get_instructions(code) if step.is_jump_target)
    place = {
        target: bisect.bisect_left(offsets, target) for target in targets
    }  # the next instruction that counts
    shape: list[object] = [
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_posonlyargcount,
        code.co_flags & 0xAC,
    ]
    for step in steps:
        argument: object = step.arg
        name = (
            "LOAD_ATTR" if step.opname == "LOAD_METHOD" else step.opname
        )  # a function of a module, or its method
        if step.opname in NAMED or step.opname in CLOSED_OVER:
            argument = None
        elif step.opname == "KW_NAMES":
            argument = len(step.argval if isinstance(step.argval, tuple) else code.co_consts[step.arg or 0])
        elif step.opname == "LOAD_CONST":
            argument = _constant(step.argval)
        elif "JUMP" in step.opname or step.opname in ("FOR_ITER", "SEND"):
            argument = place.get(step.argval)
        shape.append((name, argument))
    return tuple(shape)


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _shape(value)
    if isinstance(value, str) and ADDRESS.match(value):
        return "an address"
    if isinstance(value, frozenset):
        return ("frozenset", sorted(map(repr, value)))
    return (type(value).__name__, repr(value))


def main(arguments: list[str]) -> int:
    """Print what differs; returns 1 if anything does."""
    old, new = (functions(Path(folder)) for folder in arguments[:2])
    counts = [Counter({key: len(places) for key, places in side.items()}) for side in (old, new)]
    same = sum((counts[0] & counts[1]).values())
    alone = [
        sorted(place for key in counts[i] - counts[1 - i] for place in side[key])
        for i, side in enumerate((old, new))
    ]
    if "--json" in arguments:
        print(json.dumps({"same": same, "before": alone[0], "after": alone[1]}, indent=1))  # noqa: T201
    else:
        print(f"{same} functions are the same; {len(alone[0])} before and {len(alone[1])} after have no twin")  # noqa: T201
        for title, places in zip(("before", "after"), alone, strict=True):
            print(f"\n{title}:", *places, sep="\n  ")  # noqa: T201
    return int(any(alone))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
