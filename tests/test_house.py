"""Layout of the code: small folders, unique public class names, no import circles."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("robo_rl", "policies", "sim", "hardware")
MOST_FILES = 18  # modules in a folder; robo_rl/apps holds one file per verb and may have more
MOST_LINES = 400
VERBS = "robo_rl/apps"


@cache
def trees() -> dict[str, ast.Module]:
    """Module name -> syntax tree, for every module of the four packages."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(), str(path))
    return found


def test_no_public_class_name_is_used_twice() -> None:
    names = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_folder_is_crowded_and_no_file_is_long() -> None:
    files = python_files(*PACKAGES)
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES and folder != VERBS} == {}
    assert long_files(files) == {}


def test_no_test_file_is_long() -> None:
    """A file of tests has one subject; what several need is in a conftest.py, or in a module beside them."""
    assert long_files(python_files("tests")) == {}


def python_files(*folders: str) -> list[Path]:
    """Modules in these folders and below."""
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def long_files(files: list[Path]) -> dict[str, int]:
    """Path -> number of lines, of files above the limit."""
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    return {path: count for path, count in lines.items() if count > MOST_LINES}


def test_modules_import_each_other_without_circles() -> None:
    """Imports inside functions and for type checkers count, because a circle through them is still one."""
    edges = {name: imports(name, tree) for name, tree in trees().items()}
    assert [sorted(circle) for circle in circles(edges) if len(circle) > 1] == []


def test_one_module_compares_spellings() -> None:
    """All suggestions use `robo_rl.core.text.nearest`."""
    assert [name for name, tree in trees().items() if "difflib" in packages_of(tree)] == [
        "robo_rl.core.text.nearest"
    ]


def packages_of(tree: ast.Module) -> set[str]:
    """Top-level packages that a module imports."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in plain | named}


def imports(name: str, tree: ast.Module) -> set[str]:
    """Modules of the four packages that a module imports."""
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {other for other in named if other in trees() and other != name}


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components: modules that reach each other (Kosaraju's algorithm)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        stack = [(start, iter(sorted(edges[start])))] if start not in seen else []
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(edges[following]))))
    back: defaultdict[str, set[str]] = defaultdict(set)
    for name, others in edges.items():
        for other in others:
            back[other].add(name)
    found: list[set[str]] = []
    left = set(edges)
    for start in reversed(order):
        if start not in left:
            continue
        component, reached = {start}, [start]
        left.discard(start)
        while reached:
            for other in back[reached.pop()] & left:
                left.discard(other)
                component.add(other)
                reached.append(other)
        found.append(component)
    return found


def test_circles_are_found() -> None:
    found = circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()})
    assert sorted(map(sorted, found)) == [["a", "b", "c"], ["d"]]
