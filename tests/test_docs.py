"""Documentation: links exist, commands are valid, and tables equal the files that they describe."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from hardware.teleop.registry import GROUP  # an entry point's name, written like a module's
from robo_rl.apps.cli.aliases import by_engine
from robo_rl.apps.cli.config import CONF, load_config
from robo_rl.apps.cli.help import load_schema
from robo_rl.apps.cli.main import GROUPS
from robo_rl.apps.cli.multirun import expand_sweeps
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.conf.fields import settings
from robo_rl.conf.fly import FlyConfig
from robo_rl.data.formats.registry import FORMATS
from robo_rl.flight.fly.setup import FlightSetup, check_own

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
CODE_COLUMNS = 112  # of a code block on the site, at 1280 px (docs/site.css)
METHODS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CONF / "method").glob("*.yaml"))}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
# Settings whose command needs files of the reader's: one of settings may hold what is missing in the command.
# tests/test_own_policy_page.py runs those of networks and methods.
OF_THE_READER = re.compile(r"config=|method=.*\.yaml$|net=my_net$")
DEFAULT = "–"  # in a table of values: the method's file leaves this one alone


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Anchor that GitHub makes of a heading."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue  # leads out of the project
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file of the project; the text after # is one of its headings."""
    assert not list(broken_links(page))


def navigated(entry: Any) -> Iterator[str]:
    """Pages of a part of the navigation, which is nested lists of {title: page or part}."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry if isinstance(entry, list) else entry.values():
            yield from navigated(part)


def test_the_navigation_holds_every_page_once() -> None:
    """The site lists each page of docs/ once; README.md links to the first of them."""
    nav = list(navigated(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(nav) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)
    assert "(docs/index.md)" in (ROOT / "README.md").read_text()


def test_the_front_page_is_short() -> None:
    """README.md is for newcomers; figures and caveats are in docs/."""
    assert len((ROOT / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_fit_the_page(page: Path) -> None:
    """A longer line is cut at the right edge of the site."""
    lines = "\n".join(body for _, body in FENCE.findall(page.read_text())).splitlines()
    assert not [line for line in lines if len(line) > CODE_COLUMNS]


def commands() -> dict[str, list[dict[str, str]]]:
    """Verb -> settings of each line in fenced blocks that calls `robo-rl`."""
    blocks = [body for page in [ROOT / "README.md", *PAGES] for _, body in FENCE.findall(page.read_text())]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found: dict[str, list[dict[str, str]]] = {}
    for words in [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("robo-rl ")]:
        name = " ".join(words[: 2 if words[0] in GROUPS else 1])
        given = [word for word in words[len(name.split()) :] if not word.startswith("--")]
        if any(OF_THE_READER.match(word) for word in given):
            continue
        swept = given[:1] == ["-m"]
        for each in expand_sweeps(name, given[1:]) if swept else [given]:
            verb, plain = by_engine(name, each)
            assert all("=" in word for word in plain), words
            found.setdefault(verb, []).append(dict(word.split("=", 1) for word in plain))
    return found


def packed(given: list[dict[str, str]], free: set[str]) -> list[dict[str, str]]:
    """These commands in as few as possible, because loading is slow. Keys in `free` may have any value."""
    packs: list[dict[str, str]] = []
    for command in given:
        fits = (
            pack for pack in packs if all(key in free or pack.get(key, v) == v for key, v in command.items())
        )
        if (pack := next(fits, None)) is None:
            packs.append(pack := {})
        pack |= command
    return packs


@pytest.mark.parametrize("name", commands())
def test_commands_are_accepted(name: str) -> None:
    """The verb exists, its settings accept every key and value, and no required one is missing."""
    assert name in VERBS
    schema, given = load_schema(VERBS[name]), commands()[name]
    known = settings(schema)
    required = {key for key, setting in known.items() if setting.required}
    assert not [command for command in given if required - command.keys()]
    texts = {key for key, setting in known.items() if setting.plain_type is str and not setting.choices}
    for pack in packed(given, texts | {"method"}):  # any text is taken; names of methods are looked at below
        load_config(name, [f"{key}={value}" for key, value in pack.items()], schema)


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no git")
def test_outputs_of_documented_commands_are_ignored_by_git() -> None:
    """An output beside the code would mark every later run as "-dirty", and a token could be committed."""
    given = [command for each in commands().values() for command in each]
    keys = ("out", "video", "token", "certificate", "key")
    written = {command[key] for command in given for key in keys if command.get(key)}
    written |= {command["record"] for command in given if command.get("record") == "recordings"}
    absolute = {each for each in written if each.startswith("/")}
    written |= {"mlflow.db", "mine.zarr", "lerobot-env/bin/python", "downloads/svla_so100/x"}
    inside = sorted(each if "." in each else f"{each.partition(',')[0]}/x" for each in written - absolute)
    checked = subprocess.run(
        ["git", "check-ignore", *inside], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert set(inside) == set(checked.stdout.splitlines())
    tracked = ["git", "ls-files", "-ci", "--exclude-standard"]
    assert subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True).stdout == ""


def test_flights_can_be_flown() -> None:
    """The settings of every documented flight suit its task and craft, on the pages and in the help."""
    told = [dict(word.split("=", 1) for word in line.split()[2:]) for line in VERBS["fly"].examples]
    flights = [given for given in (*commands()["fly"], *told) if "mine.yaml" not in given.values()]
    assert len(flights) > 10
    for given in flights:
        plain = {key: yaml.safe_load(value) for key, value in given.items() if not key.startswith("method")}
        config = FlyConfig(**plain)
        check_own(config)
        FlightSetup.of(config)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"learner": {"tau": 1}} -> {"learner.tau": 1}; the name is no setting."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return {key: value for key, value in found.items() if key != "name"}


def rows(page: Path) -> Iterator[list[str]]:
    """Cells of every line of a table."""
    for line in page.read_text().splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@cache
def documented() -> dict[str, dict[str, Any]]:
    """Method -> setting -> value, from tables whose header is `setting` and methods.

    A row may name several settings, with values in the same order, or a group, as {key: value}.
    """
    found: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        columns: list[str] = []
        for first, *cells in rows(page):
            keys = re.findall(r"`([\w.]+)`", first)
            if not keys:  # the head of a table, or the line below it
                methods = [cell.strip("`") for cell in cells if cell.strip("`") in METHODS and "`" in cell]
                columns = methods if first == "setting" else columns if set(first) == {"-"} else []
                continue
            for method, cell in zip(columns, cells, strict=False):
                values = (
                    [] if cell == DEFAULT else yaml.safe_load(f"[{cell}]" if len(keys) > 1 else f"[[{cell}]]")
                )
                values = values if len(keys) > 1 or not values else values[0]
                for key, value in zip(keys, values, strict=bool(values)):
                    group = {key: value} if not isinstance(value, dict) else flat(value, f"{key}.")
                    found.setdefault(method, {}).update(group)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_its_values_on_a_page(method: str) -> None:
    """The tables equal the files in every value: a changed recipe needs a changed page."""
    assert documented().get(method) == flat(METHODS[method])


def test_every_method_has_a_command() -> None:
    """Every described method has a command, and no command names an unknown method."""
    assert {command["method"] for command in commands()["finetune"] if "method" in command} == set(METHODS)


NAMED_PAGES = [path for path in [*ROOT.glob("*.md"), *PAGES] if path.name != "results.md"]
PACKAGES = "robo_rl|policies|sim|hardware|benchmarks|tests|launch|docker|docs|examples"


@pytest.mark.parametrize("page", NAMED_PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """Paths such as `sim/registry.py`; <name> and * match several files, -v0 ends an environment's name."""
    named = re.findall(rf"(?<![\w/.])((?:{PACKAGES})/[\w/.{{}}*<>-]*[\w}}>*])", page.read_text())
    paths = [file for file in named if "<" not in file and "-v0" not in file]
    gone = [file for file in paths if not list(ROOT.glob(without_braces(file)))]
    assert not gone


def without_braces(path: str) -> str:
    """`sim/{a,b}.py` as patterns for glob, which has no braces."""
    return re.sub(r"\{[^}]*\}?", "*", path)


@pytest.mark.parametrize("page", NAMED_PAGES, ids=name_of)
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    """Dotted names such as `sim.registry.make_env`: the module exists and has the attribute."""
    text = re.sub(r"[\w-]+\.(?:md|launch\.py)\b", "", page.read_text())  # names of files, not of modules
    named = re.findall(r"(?<![\w/.])(?:robo_rl|policies|sim|hardware)(?:\.[A-Za-z_]\w*)+", text)
    assert not [name for name in set(named) - {GROUP} if not resolves(name)]


def resolves(name: str) -> bool:
    """True if the longest prefix that is a file defines the next part of the dotted name."""
    parts = name.split(".")
    for used in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:used])
        module = path if path.is_dir() else path.with_suffix(".py")
        if module.is_dir():
            return used == len(parts)
        if module.is_file():
            rest = parts[used : used + 1]
            return not rest or bool(re.search(rf"\b{rest[0]}\b", module.read_text()))
    return False


def test_the_home_page_links_to_every_page_of_the_reference() -> None:
    """docs/index.md is the list of all pages: none may be reachable by the navigation alone."""
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES} - {"index.md"}
    assert pages <= linked


def test_formats_are_listed_with_what_they_lose() -> None:
    """docs/data-formats.md says of every format what the verb says."""
    page = (ROOT / "docs/data-formats.md").read_text()
    for name, each in FORMATS.items():
        assert f"| `{name}` | {each.loses} |" in page, name
