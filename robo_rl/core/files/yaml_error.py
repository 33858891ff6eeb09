"""Words for a YAML file that cannot be parsed."""

from __future__ import annotations


def yaml_words(error: Exception) -> str:
    """The fault of a parser's error and its place, e.g. "line 2, column 1: expected ']'"."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
