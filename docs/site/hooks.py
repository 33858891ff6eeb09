"""Hooks of mkdocs: pages from files of the repository's root, a page per verb, and formulas as MathML."""

from __future__ import annotations

import html
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

from robo_rl.apps.cli.help import load_schema, setting_rows
from robo_rl.apps.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
VERBS_PAGE = "verbs.md"
ALONE = ("index.md", "results.md")  # parts of one page: the navigation would hold its name alone
WIDE = ("topics.md",)  # a table of seven columns needs the room of the table of contents
LONG_NAME = 16  # characters
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>',
    flags=re.DOTALL,
)
_CELL = re.compile(r"(<t[dh][^>]*>)(.*?)(</t[dh]>)", flags=re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_LONG_WORD = re.compile(rf"[\w/]{{{LONG_NAME + 1},}}")
_TAG = re.compile(r"(<[^>]*>)")
_RANGE = re.compile(r"(\d)–(\d)")
_FUNCTION = re.compile(r"<m([io])>((?:arg|log|exp|tanh|sin|cos|max|min|mean|softmax|clip)\w*)</m\1>(?!<mo)")

_NORM, _FLAT_NORM = "<mo>&#x02016;</mo>", '<mo fence="false" stretchy="false">&#x02016;</mo>'
_BASE = r"(<mi>[^<]*</mi>|<mover>(?:(?!</mover>).)*</mover>)"
_PRIMED = re.compile(rf"<msup>{_BASE}<mi>&#x02032;</mi></msup>")
_PRIMED_INDEX = re.compile(rf"<msubsup>{_BASE}(<m[in]>[^<]*</m[in]>)<mi>&#x02032;</mi></msubsup>")
_THIN = '<mspace width="0.17em"/>'
_PRIME = '<mo lspace="0" rspace="0">&#x02032;</mo>'


def pages() -> dict[str, list[str]]:
    """Page of the site -> its verbs: one page per verb, those of a group such as `data` on one."""
    first = groupby(VERBS, key=lambda name: name.split()[0])
    return {f"verbs/{word}.md": list(names) for word, names in first}


def on_config(config: Any, **_: Any) -> Any:
    """Configuration whose navigation lists a page per verb below that of all verbs."""
    for part in config["nav"]:
        for entry in part.get("Reference", []):
            if VERBS_PAGE in entry.values():
                name = next(iter(entry))
                entry[name] = [{"All verbs": VERBS_PAGE}, *({Path(page).stem: page} for page in pages())]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Files of the site with the pages of the verbs, which are made from the settings' schemas."""
    for page, verbs in pages().items():
        text = f"---\nhide: [toc]\n---\n\n# {Path(page).stem}\n\n" + "\n\n".join(
            verb_section(name, titled=len(verbs) > 1) for name in verbs
        )
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Text of a page; `include: FILE.md` in its front matter stands for that file of the root."""
    if page.file.src_uri in ALONE:
        page.meta.setdefault("hide", ["navigation"])
    if page.file.src_uri in WIDE:
        page.meta.setdefault("hide", ["toc"])
    if name := page.meta.get("include"):
        text = (ROOT / name).read_text()
        for file, included in _INCLUDED.items():
            text = text.replace(f"]({file})", f"]({included})")
        return text.replace("](docs/", "](")
    if page.meta.get("generate") == "verbs":
        return f"{markdown}\n{verbs_table()}"
    return markdown


def verbs_table() -> str:
    """Table of all verbs with links to their settings."""
    rows = []
    for page, verbs in pages().items():
        for name in verbs:
            anchor = f"#{name.replace(' ', '-')}" if len(verbs) > 1 else ""
            rows.append(f"| [`{name}`]({page}{anchor}) | {VERBS[name].summary} |")
    return "| verb | what it does |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def verb_section(name: str, titled: bool) -> str:
    """Summary, examples and settings of a verb; its choices of groups keep the defaults."""
    verb = VERBS[name]
    rows = setting_rows(name, load_schema(verb), ())
    cells = [" | ".join(cell.replace("|", "&#124;").replace("<", "&lt;") for cell in row) for row in rows]
    table = "\n".join(f"| {row} |" for row in cells)
    return (
        (f"## {name}\n\n" if titled else "")
        + f"{verb.summary[0].upper()}{verb.summary[1:]}.\n\n```bash\n"
        + "\n".join(verb.examples)
        + f"\n```\n\n| setting | type | default | meaning |\n| --- | --- | --- | --- |\n{table}\n"
    )


def on_page_content(content: str, **_: Any) -> str:
    """HTML of a page: formulas as MathML, which browsers draw without a script; paths in tables may wrap."""
    return _CELL.sub(_wrappable, _FORMULA.sub(_mathml, content))


def _wrappable(cell: re.Match[str]) -> str:
    """Cell of a table in which code may break after a slash or a comma, a long name after `_`; no range."""
    parts = _TAG.split(_CODE.sub(_breaks, cell[2]))
    parts[::2] = [
        _RANGE.sub("\\1\u2060–\u2060\\2", _LONG_WORD.sub(_word_breaks, text)) for text in parts[::2]
    ]
    text = "".join(parts)
    return cell[1] + text + cell[3]


def _word_breaks(word: re.Match[str]) -> str:
    return re.sub(r"([/_])(?=\w)", r"\1<wbr>", word[0])


def _breaks(code: re.Match[str]) -> str:
    after = "/,_" if len(code[0]) > LONG_NAME else "/,"
    return re.sub(rf"([{after}])(?=\w)", r"\1<wbr>", code[0])


def _mathml(found: re.Match[str]) -> str:
    """MathML as Chromium draws it well; a display formula in a box that scrolls.

    Chromium raises a prime twice where it is a superscript, and leaves no space beside a function's name.
    """
    block = found[2] == "["
    text = str(convert(html.unescape(found[3]).strip(), display="block" if block else "inline"))
    text = _FUNCTION.sub(rf"<mrow>{_THIN}<mi>\2</mi>{_THIN}</mrow>", text)
    text = _PRIMED.sub(rf"<mrow>\1{_PRIME}</mrow>", text.replace(_NORM, _FLAT_NORM))
    text = _PRIMED_INDEX.sub(rf"<msub><mrow>\1{_PRIME}</mrow>\2</msub>", text)
    return f'<div class="formula" tabindex="0">{text}</div>' if block else text


_INCLUDED = {
    "SAFETY.md": "safety-promises.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
