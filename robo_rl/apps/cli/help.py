"""Texts of `robo-rl --help` and `robo-rl <verb> --help`."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, Any

from robo_rl.apps.cli.aliases import flight_names, scene_words
from robo_rl.apps.cli.most_used import MOST_USED
from robo_rl.apps.cli.verbs import VERBS, Verb

if TYPE_CHECKING:
    from robo_rl.conf.fields import Setting

MAX_COLUMN = 28
LEAST_MEANING = 35  # columns for the meaning of a setting, below which it stands in lines of its own
NARROWEST, NO_TERMINAL, WIDEST = 60, 120, 140  # width of a page
INTRO = "robo-rl: from demonstrations to a policy that a robot can run"
USAGE = """

Usage:   robo-rl <verb> key=value ...
Verbs, in order of use, each with an example:
"""
TERMS = [  # with their meaning, below the verbs
    (
        "robo-rl <verb> --help",
        "settings of a verb with types, defaults and meaning; of those with many, the most used",
    ),
    ("robo-rl <verb> --help all", "all of them"),
    (
        "config=mine.yaml",
        "settings from a YAML file, for every verb; those on the command line win",
    ),
    ("robo-rl --version", "the version"),
    (
        "-m seed=1,2,3",
        "one run per value, each in its own folder below out=; several keys: all combinations",
    ),
]
NOTES = [  # a line each, below the terms
    "A run is a folder with its settings, commit and seed; resume=true continues a run that was stopped.",
    "Exit codes: 0 done, 1 error in robo-rl, 2 wrong input or an error in your own script, 3 an environment, "
    "a robot or the bus cannot be reached, refuses or has ended, 4 disk full, 130 Ctrl-C.",
    "data replay ends with 1 if the replay differs or stops early, call if the answer is no, demo if a stage "
    "fails.",
    "up and record end with 0 after Ctrl-C, their usual end.",
]

HEADINGS = {  # first verb of a group in the list of all verbs -> its heading
    "doctor": "Start",
    "collect": "Data",
    "train": "Train",
    "fly": "Fly, and identify a simulator's parameters",
    "distill": "Speed up and measure",
    "export": "Deploy",
    "runs": "Runs and sharing",
}
ADVICE = {
    ("finetune", "method"): "; docs/methods.md helps to choose, start with auto"
}  # (verb, group of values)

Row = tuple[str, str, str, str]  # setting, type, value, meaning


def overview(group: str | None = None) -> str:
    """Help for `robo-rl`, or for the verbs of one group such as "data"."""
    verbs = {name: verb for name, verb in VERBS.items() if group is None or name.startswith(group + " ")}
    lines = []
    for name, verb in verbs.items():
        summary = _indented(verb.summary, f"  {name:<14} ", 17)
        lines.append(f"{heading_of(name, group)}{summary}\n  {'':<14}   {verb.examples[0]}")
    blank = "" if group is None else "\n"  # the first heading begins with one
    terms = [_indented(meaning, f"{term:<27} ", 28) for term, meaning in TERMS]
    notes = [_indented(note) for note in NOTES]
    return _indented(INTRO) + USAGE + blank + "\n".join([*lines, "", *terms, "", *notes])


def heading_of(name: str, group: str | None) -> str:
    """Heading above a verb in the list of all verbs; empty where none begins."""
    return f"\n{HEADINGS[name]}\n" if group is None and name in HEADINGS else ""


def load_schema(verb: Verb) -> type:
    """The dataclass of a verb's settings."""
    module, name = verb.schema.split(":")
    schema = getattr(import_module(module), name)
    assert isinstance(schema, type)
    return schema


def verb_help(
    name: str, overrides: Sequence[str] = (), everything: bool = False, typed: str | None = None
) -> str:
    """Help for one verb, generated from its schema; with overrides, with the resulting values.

    everything: all settings, also of a verb whose most used ones are listed alone otherwise. typed: the verb
    as it was typed, see `typed_verb`; None: `name`.
    """
    verb, typed = VERBS[name], typed or name
    rows = setting_rows(name, load_schema(verb), overrides)
    first, rest = most_used(name, rows)
    titles = ("Setting", "Type", "Value" if overrides else "Default", "Meaning")
    tables = [("", [titles, *first])]  # (sentence above, rows)
    if rest and everything:
        tables.append(("Other settings:", [titles, *rest]))
    titles = (*titles[:2], "Default", "Meaning")
    if flights := _flight_rows(name):
        heading = "A flight is trained from scratch, without data=, by the settings of its own verb:"
        tables.append((_indented(heading), [titles, *flights]))
    if scenes := _scene_rows(name):
        heading = "Simulated arm, mobile and hand tasks: task=<name> instead of env=, with these options:"
        tables.append((_indented(heading), [titles, *scenes]))
    lay_out = _columns if all(_room(table) >= LEAST_MEANING for _, table in tables) else _listed
    blocks = [_indented(f"robo-rl {typed}: {verb.summary}"), f"Usage:   robo-rl {typed} key=value ..."]
    for heading, table in tables:
        blocks += [heading, "\n".join(lay_out(table))]
    if rest and not everything:
        typed_keys = {word.partition("=")[0] for word in typed.split() if "=" in word}
        more = [word for word in overrides if word.partition("=")[0] not in typed_keys]
        words = shlex.join(("robo-rl", *typed.split(), *more))
        blocks.insert(4, f"{len(rest)} more settings: {words} --help all")
    blocks.append("\n".join(["Examples:", *(f"  {example}" for example in verb.examples)]))
    return "\n\n".join(filter(None, blocks))


def most_used(name: str, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """(rows of the most used settings in their order, the other rows). A verb with few settings has no
    others.
    """
    keys = MOST_USED.get(name, tuple(row[0] for row in rows))
    by_key = {row[0]: row for row in rows}
    return [by_key[key] for key in keys], [row for row in rows if row[0] not in keys]


def setting_rows(name: str, schema: type, overrides: Sequence[str]) -> list[Row]:
    """One row per setting; a group of values comes before the settings that it sets."""
    from robo_rl.apps.cli.config import default_option, groups, preview
    from robo_rl.conf.fields import settings

    values, options = preview(name, overrides, schema), groups(schema)
    rows: list[Row] = []
    for key, setting in settings(schema).items():
        shown = _value_words(name, setting, values[key])
        group = key.split(".")[0]
        if group in options:
            chosen = next(
                (o.partition("=")[2] for o in overrides if o.startswith(group + "=")),
                default_option(name, group),
            )
            names = " | ".join(options.pop(group))
            advice = ADVICE.get((name, group), "")
            rows.append(
                (
                    group,
                    "name or file",
                    chosen,
                    f"sets {group}.*: {names}, or a YAML file of your own{advice}",
                )
            )
        rows.append((key, setting.type_words, shown, setting.meaning))
    return rows


def _value_words(verb: str, setting: Setting, value: Any) -> str:
    """Default or resulting value of a setting; blank for one that the chosen variant does not have."""
    if verb == "up" and value is None and setting.key != "seconds":
        return "set's own"
    if value == "" and setting.default != "":
        return ""
    return replace(setting, default=value).default_words


def _flight_rows(name: str) -> list[Row]:
    """Rows on task= and engine= of `train`, which stand for another verb."""
    if name != "train":
        return []
    return [
        ("task", "text", "none", f"{' | '.join(flight_names())}; settings: robo-rl train task=<name> --help"),
        ("engine", "quad | pybullet", "quad", "simulator of the flight"),
    ]


def _scene_rows(name: str) -> list[Row]:
    """Rows on task= and its options, for verbs that accept it."""
    from robo_rl.conf.fields import settings
    from sim.tasks.table import TaskOptions, all_tasks

    if not (words := scene_words(name)):
        return []
    known = settings(TaskOptions)
    options = [
        (word, known[word].type_words, known[word].default_words, known[word].meaning) for word in words
    ]
    return [("task", "text", "none", " | ".join(all_tasks())), *options]


def page_width() -> int:
    """Columns of the terminal, from 60 to 140; 120 where the help goes to a file or another program."""
    columns = shutil.get_terminal_size((NO_TERMINAL, 24)).columns
    return min(WIDEST, max(NARROWEST, columns))


def _indented(text: str, first: str = "", indent: int = 0) -> str:
    """`text` in lines of the page's width. first: start of the first line; indent: spaces before others."""
    filled = fill(
        text,
        page_width(),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return filled.rstrip() or first.rstrip()


def _widths(rows: Sequence[Row]) -> list[int]:
    """Widths of the columns before the meaning."""
    return [min(MAX_COLUMN, max(len(row[i]) for row in rows)) for i in range(3)]


def _room(rows: Sequence[Row]) -> int:
    """Columns of the page that are left for the meaning."""
    return page_width() - sum(_widths(rows)) - 8


def _columns(rows: Sequence[Row]) -> list[str]:
    """Lines of a table with these rows, the first of which holds the titles. The last column wraps, and a
    cell too wide for its column moves the rest to the next line.
    """
    widths = _widths(rows)
    indent = sum(widths) + 8
    lines = []
    for *cells, meaning in rows:
        head = "  " + "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        if len(head) > indent:
            lines.append(_indented(head.strip(), "  ", 6))
            head = " " * indent
        lines.append(_indented(meaning, head, indent))
    return lines


def _listed(rows: Sequence[Row]) -> list[str]:
    """Each setting with its type and value in one line, and its meaning below, where the page is too narrow
    for a table.
    """
    (_, _, title, _), *settings = rows
    lines = []
    for key, kind, value, meaning in settings:
        known = value if value == "required" else f"{title.lower()} {value}" if value else ""
        lines.append(_indented(f"({', '.join(filter(None, (kind, known)))})", f"  {key}  ", 6))
        lines.append(_indented(meaning, " " * 6, 6))
    return lines
