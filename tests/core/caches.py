"""Finds what the program keeps between requests: memoised functions, caches, and dictionaries of objects."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMOS = {"lru_cache", "cache"}
CHILD = "parse"  # folders of what the parser child runs: its objects end with the file
KINDS = {
    "TTLCache",
    "LRUCache",
    "OrderedDict",
    "defaultdict",
    "dict",
    "WeakKeyDictionary",
    "WeakValueDictionary",
}


def caches():
    """Return the names of all: of the function, or of the class and its attribute; the demo has none of interest."""
    found = set()
    for top in ("bot", "handlers"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if "demo" not in path.parts and "migrations" not in path.parts:
                found |= _of_module(ast.parse(path.read_text()), keeps=CHILD not in path.parts)
    return found


def _of_module(tree, *, keeps):
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and keeps:
            found |= {f"{node.name}.{name}" for name in _attributes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_name(one) in MEMOS for one in node.decorator_list):
                found.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _memoises(node.value.func):
            found.add(ast.unparse(node.targets[0]))
    return found


def _attributes(node):
    """Yield the attributes that begin empty, and are filled later."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for line in ast.walk(method):
                target = line.target if isinstance(line, ast.AnnAssign) else None
                if target is None and isinstance(line, ast.Assign):
                    target = line.targets[0]
                if isinstance(target, ast.Attribute) and line.value is not None and _is_kept(line.value):
                    yield target.attr


def _is_kept(value):
    empty = isinstance(value, ast.Dict) and not value.keys
    return empty or (isinstance(value, ast.Call) and _name(value) in KINDS)


def _memoises(node):
    """Whether what is called is `lru_cache` or `lru_cache(100)`: what comes of it is memoised."""
    return _name(node) in MEMOS


def _name(node):
    """Return the last word of what a decorator or call names."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
