"""Hooks of mkdocs: pages from files of the repository's root, the verbs' settings, and formulas as MathML."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from robo_rl.apps.cli.help import load_schema, setting_rows
from robo_rl.apps.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>',
    flags=re.DOTALL,
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Text of a page; `include: FILE.md` in its front matter stands for that file of the root."""
    if name := page.meta.get("include"):
        text = (ROOT / name).read_text()
        for file, included in _INCLUDED.items():
            text = text.replace(f"]({file})", f"]({included})")
        return text.replace("](docs/", "](")
    if page.meta.get("generate") == "verbs":
        return "\n\n".join([markdown, *map(verb_section, VERBS)])
    return markdown


def verb_section(name: str) -> str:
    """Summary, examples and settings of a verb; its choices of groups keep the defaults."""
    verb = VERBS[name]
    rows = setting_rows(name, load_schema(verb), ())
    cells = [" | ".join(cell.replace("|", "&#124;").replace("<", "&lt;") for cell in row) for row in rows]
    table = "\n".join(f"| {row} |" for row in cells)
    return (
        f"## {name}\n\n{verb.summary}\n\n```bash\n" + "\n".join(verb.examples) + "\n```\n\n"
        f"| setting | type | default | meaning |\n| --- | --- | --- | --- |\n{table}\n"
    )


def on_page_content(content: str, **_: Any) -> str:
    """HTML of a page with each formula as MathML, which browsers draw without a script."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[2] == "[" else "inline"
    return str(convert(html.unescape(found[3]).strip(), display=display))


_INCLUDED = {
    "SAFETY.md": "safety-promises.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
