"""Hooks of the site: a page per verb, formulas that scroll, names in tables that may wrap."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from robo_rl.apps.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="the site needs the extra docs: pip install '.[docs]'")
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_verb_is_on_one_page(hooks: ModuleType) -> None:
    """One page per verb and per group such as `data`; the navigation lists each, below that of all verbs."""
    pages = hooks.pages()
    assert [name for names in pages.values() for name in names] == list(VERBS)
    config = hooks.on_config({"nav": yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]})
    (reference,) = (part["Reference"] for part in config["nav"] if "Reference" in part)
    listed = [page for entry in reference[0]["Verbs and settings"] for page in entry.values()]
    assert listed == ["verbs.md", *pages]


def test_the_list_of_verbs_links_to_their_pages(hooks: ModuleType) -> None:
    table = hooks.verbs_table()
    assert "| [`collect`](verbs/collect.md) |" in table
    assert "| [`data import`](verbs/data.md#data-import) |" in table


def test_a_verb_has_its_settings(hooks: ModuleType) -> None:
    """Summary, examples and a row per setting."""
    section = hooks.verb_section("export", titled=False)
    assert section.startswith("Write a bundle")
    assert "robo-rl export policy=" in section
    assert "| policy | text | required |" in section


def test_a_display_formula_has_a_box_that_scrolls(hooks: ModuleType) -> None:
    """The page stays as wide as the window; a function's name does not run into its argument."""
    found = hooks.on_page_content('<div class="arithmatex">\\[\\alpha \\log \\pi\\]</div>')
    assert found.startswith('<div class="formula" tabindex="0"><math')
    assert '<mi>log</mi><mspace width="0.17em"/>' in found


def test_a_prime_is_raised_once(hooks: ModuleType) -> None:
    """The character is raised already; a superscript would raise and shrink it again."""
    found = hooks.on_page_content("<span class=\"arithmatex\">\\(q' + Q'_i\\)</span>")
    assert "<msup>" not in found
    assert found.count('<mo lspace="0" rspace="0">&#x02032;</mo>') == 2


def test_long_names_in_tables_break_at_a_separator(hooks: ModuleType) -> None:
    """Not inside a word, and only in tables."""
    cell = "<td><code>rl/off_policy/learner.py</code></td><td><code>rmw_dds</code></td>"
    assert hooks.on_page_content(cell) == (
        "<td><code>rl/<wbr>off_<wbr>policy/<wbr>learner.py</code></td><td><code>rmw_dds</code></td>"
    )
    typed = hooks.on_page_content("<td>sensor_msgs/JointState</td>")
    assert typed == "<td>sensor_<wbr>msgs/<wbr>JointState</td>"
    link = '<td><a href="../first/second_third/fourth.html">short</a></td>'
    assert hooks.on_page_content(link) == link
    assert hooks.on_page_content("<td>0.61–0.79</td>") == "<td>0.61\u2060–\u20600.79</td>"
    assert hooks.on_page_content("<p><code>rl/off_policy</code></p>") == "<p><code>rl/off_policy</code></p>"
