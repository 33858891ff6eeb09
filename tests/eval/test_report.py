from __future__ import annotations

import base64
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import cv2
import numpy as np
import pytest
from rich.console import Console

from robo_rl.core.errors import ConfigError
from robo_rl.eval import report as report_module
from robo_rl.eval import text
from robo_rl.eval.plots import Curve, curve_form, spread_labels, step_words, write_learning_curves
from robo_rl.eval.probe import Probe
from robo_rl.eval.report import Media, Report, headline, render, write_report
from robo_rl.eval.results import ResultRow, write_results
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.table import print_results
from robo_rl.eval.timing import Latency


def row(name: str, k: int, p: float | None, ms: float = 2.0, env_steps: int = 0) -> ResultRow:
    return ResultRow(name, SuccessRate(k, 100), p, Latency(ms, 1.5 * ms, 200, 1), env_steps, 41.2, 40.1)


ROWS = [
    row("base", 57, None),
    row("base_zero_noise", 81, 0.0119),
    row("steered", 98, 1e-8, 2.3, 12000),
    row("residual", 41, 0.004, 2.2, 24000),
    row("head", 97, 2e-8, 0.08),
]


def report(**changes: object) -> Report:
    fields: dict[str, object] = {"title": "Peg & hole", "subtitle": "a <test>", "rows": ROWS, "wall_s": 512.0}
    return Report(**(fields | changes))  # type: ignore[arg-type]


def test_results_json_has_exactly_the_promised_shape(tmp_path: Path) -> None:
    """Other programs read this file by these names."""
    write_results(tmp_path / "results.json", ROWS, 512.0)
    data = json.loads((tmp_path / "results.json").read_text())
    assert set(data) == {"commit", "machine", "wall_s", "rows"}
    keys = (
        "name k n success wilson95 p_vs_base p_vs_zero_noise decision_ms_p50 decision_ms_p99 "
        "decision_ms_cpu env_steps train_cpu_s"
    )
    assert [set(line) for line in data["rows"]] == [set(keys.split())] * 5
    assert data["rows"][0] | {"wilson95": 0} == {
        "name": "base", "k": 57, "n": 100, "success": 0.57, "wilson95": 0, "p_vs_base": None,
        "p_vs_zero_noise": None,
        "decision_ms_p50": 2.0, "decision_ms_p99": 3.0, "decision_ms_cpu": None, "env_steps": 0,
        "train_cpu_s": 40.1,
    }  # fmt: skip
    assert data["rows"][0]["wilson95"] == pytest.approx([0.4722, 0.6627], abs=1e-4)


def test_the_terminal_table_holds_every_number() -> None:
    """Numbers in a log without colours and width must not be wrapped or cut."""
    console = Console(record=True, width=20, file=open("/dev/null", "w"))  # noqa: SIM115  closed with the test
    print_results(ROWS, console=console)
    shown = console.export_text()
    console.file.close()
    for piece in (
        "57/100",
        "57 %",
        "47–66",
        "0.012",
        "< 0.001",
        "12\u202f000",
        "0.080",
        "41 s",
        "Single-step head",
    ):
        assert piece in shown


class _Page(HTMLParser):
    """Collects text, sources and the nesting of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.sources, self.open = "", [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    assert page.open == []
    return page


def test_page_is_self_contained(tmp_path: Path) -> None:
    """One self-contained file: no script, font or image from elsewhere."""
    figure, video = tmp_path / "curve.svg", tmp_path / "film.mp4"
    figure.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    video.write_bytes(b"film")
    probe = Probe(SuccessRate(33, 50), SuccessRate(40, 50), SuccessRate(25, 25), 8, 14200, 9.3)
    write_report(
        tmp_path / "report.html",
        report(
            figures=[Media(figure, "curves")], videos=[Media(video, "a film")], probe=probe,
            recommendation=probe.recommend(), commands=["make demo"], facts={"task": "peg"},
        ),
    )  # fmt: skip
    html = (tmp_path / "report.html").read_text()
    page = parse(html)
    assert "<script" not in html
    assert [source.split(":")[0] for source in page.sources] == ["data", "data"]
    assert base64.b64encode(b"film").decode() in page.sources[1]
    for piece in (
        "57/100",
        "47–66",
        "0.012",
        "make demo",
        "Best of 8 draws",
        "25/25 = 100\u00a0% [87, 100]",
        "Wilson",
    ):
        assert piece in page.text


def test_each_row_has_a_description() -> None:
    """Readers need not know what a residual is; other rows are shown without a description."""
    page = parse(render(report(rows=[*ROWS, row("mine", 3, None)]), Path()))
    for each in ROWS:
        assert each.meaning.endswith(".")
        assert each.meaning in page.text
    assert page.text.count("mine") == 1


def test_wide_content_scrolls_in_its_box(tmp_path: Path) -> None:
    """Tables and curves scroll inside their boxes: the page keeps the screen's width, and text is not cut."""
    (tmp_path / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    probe = Probe(SuccessRate(33, 50), SuccessRate(40, 50), SuccessRate(25, 25), 8, 14200, 9.3)
    html = render(report(figures=[Media(tmp_path / "curve.svg", "curves")], probe=probe), tmp_path)
    assert '<meta name="viewport" content="width=device-width' in html
    wide = re.findall(r"<(?:table|img)\b", html)
    assert len(wide) == 3
    assert len(re.findall(r'<div class="scroll">\s*<(?:table|img)\b', html)) == len(wide)


def test_no_line_breaks_within_a_number(tmp_path: Path) -> None:
    """Neither between thousands nor before a unit, also in sentences that wrap."""
    page = parse(render(report(), tmp_path))
    assert "the base 57\u00a0% with N(0, I) noise (p\u00a0<\u00a00.001)" in page.text
    assert "0.080\u00a0ms per decision" in page.text
    assert text.count(12345678) == "12\u202f345\u202f678"


def test_a_long_word_is_broken(tmp_path: Path) -> None:
    """A name of 140 letters, as of a task or a folder, does not widen the page beyond the screen."""
    html = render(report(title="x" * 140, facts={"out": "y" * 140}), tmp_path)
    broken = re.findall(r"([^{}]+)\{[^{}]*overflow-wrap: anywhere", html)
    selectors = {part.strip() for rule in broken for part in rule.split(",")}
    assert {"h1", ".subtitle", ".facts dd", "figcaption"} <= selectors


def test_markup_in_names_is_text() -> None:
    """Task and dataset names come from users; a name is never markup."""
    html = render(report(title="<script>alert(1)</script>", facts={"<b>": "<i>"}), Path())
    assert "<script>" not in html
    assert "<script>alert(1)</script>" in parse(html).text


def test_large_videos_are_linked_relative_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large videos are linked, and the folder can be moved as a whole."""
    monkeypatch.setattr(report_module, "EMBED_BYTES", 3)
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "film.mp4").write_bytes(b"film")
    page = parse(render(report(videos=[Media(tmp_path / "videos" / "film.mp4", "a")]), tmp_path))
    assert page.sources == ["videos/film.mp4"]


def test_better_and_worse_are_marked_only_beyond_chance() -> None:
    """Green for p < 0.05 above the base, red below it, neither for an insignificant difference."""
    rows = [row("base", 57, None), row("steered", 98, 1e-8), row("residual", 41, 0.004), row("head", 60, 0.7)]
    html = render(report(rows=rows), Path())
    marks = re.findall(r'<td class="n (better|worse|)">([^<]*)</td>', html)
    assert marks == [("", "–"), ("better", "&lt; 0.001 ▲"), ("worse", "0.004 ▼"), ("", "0.70")]


def test_the_headline_names_the_best_and_its_cost() -> None:
    """Success, fine-tuning steps, speed of the head, total time."""
    tiles = {what: value for value, what, _ in headline(report())}
    assert tiles == {
        "Success": "98 %",
        "Environment steps": "12\u202f000",
        "Faster decisions": "25×",
        "Total time": "8 min 32 s",
    }
    assert [what for _, what, _ in headline(report(rows=ROWS[:1]))] == ["Total time"]


def test_the_steps_of_distillation_are_not_those_of_fine_tuning() -> None:
    """A head that beats its teacher also needed the teacher's steps: the headline states fine-tuning's."""
    rows = [*ROWS[:-1], row("head", 99, 2e-8, 0.08, 4000)]
    tiles = {what: (value, detail) for value, what, detail in headline(report(rows=rows))}
    assert tiles["Success"][0] == "99 %"
    assert tiles["Environment steps"] == (
        "12\u202f000",
        "of fine-tuning: Noise steering; the head adds 4\u202f000",
    )


def test_the_headline_names_both_bases_and_their_episodes() -> None:
    """Zero noise alone is better than N(0, I) noise: a gain over the latter is not all learned."""
    best = replace(row("head", 99, 2e-8, 0.08, 4000), p_vs_zero_noise=0.003)
    (detail,) = (d for _, what, d in headline(report(rows=[*ROWS[:-1], best])) if what == "Success")
    assert detail == (
        "Single-step head; the base 57 % with N(0, I) noise (p < 0.001), 81 % with zero noise (p = 0.003); "
        "the same 100 episodes"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "–"),
        (0.44, "0.4 s"),
        (48.2, "48 s"),
        (59.9, "1 min 00 s"),
        (192, "3 min 12 s"),
        (3900, "1 h 05 min"),
    ],
)
def test_durations_are_rounded(value: float, shown: str) -> None:
    """Rounding must not give "60 s"."""
    assert text.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0812, "0.081"), (2.054, "2.05"), (31.44, "31.4"), (412.4, "412"), (0, "–")]
)
def test_latencies_keep_three_digits(value: float, shown: str) -> None:
    """A head at 80 us and a base at 400 ms share a column."""
    assert text.milliseconds(value) == shown


def test_labels_move_apart_in_order() -> None:
    """Labels of curves that end at 98 % and 97 % would overlap: the lower one is moved down, the others
    stay.
    """
    assert spread_labels([0.97, 0.5, 0.98], gap=0.07, top=1.0) == pytest.approx([0.91, 0.5, 0.98])
    assert spread_labels([1.05], gap=0.07, top=1.0) == [1.0]
    assert spread_labels([0.0, 0.3, 0.02], gap=0.2, top=1.0, bottom=0.1) == pytest.approx([0.1, 0.5, 0.3])


def test_learning_curves_are_drawn_and_repeatable(tmp_path: Path) -> None:
    """SVG with the labels as text, PNG of the same, and the same bytes for the same data."""
    one = Curve.from_rates("steering", [0, 4000, 8000], [SuccessRate(k, 50) for k in (33, 47, 49)])
    runs = ((12, 18), (12, 20), (12, 19))
    three = Curve.from_seeds("residual", [0, 8000], [[SuccessRate(k, 20) for k in run] for run in runs])
    assert three.value == pytest.approx((0.6, 0.95))
    assert (three.low[0], three.high[0]) == SuccessRate(36, 60).wilson()
    assert three.low[1] == pytest.approx(0.95 - 4.302653 * 0.05 / math.sqrt(3))
    assert three.high[1] == 1.0
    svg, png = write_learning_curves(tmp_path / "a", [one, three], {"base": 0.66}, "title")
    words = " ".join(ET.parse(svg).getroot().itertext())
    for piece in ("steering 98 %", "residual 95 %", "base 66 %", "Environment steps"):
        assert piece in " ".join(words.split())
    picture = np.asarray(cv2.imread(str(png)))
    assert picture.shape[1] > 1500
    assert (picture == (178, 114, 0)).all(axis=-1).any()  # the first colour of the palette, blue first
    again, _ = write_learning_curves(tmp_path / "b", [one, three], {"base": 0.66}, "title")
    assert again.read_bytes() == svg.read_bytes()


def words_of(svg: Path) -> str:
    """Text of a plot."""
    return " ".join(" ".join(ET.parse(svg).getroot().itertext()).split())


def test_returns_that_are_not_finite_leave_a_gap(tmp_path: Path) -> None:
    """The other runs and points are drawn; a label keeps the height of the last point, and says what follows
    it. Without any point, the axis is [-1, 1].
    """
    nan, inf = math.nan, math.inf
    both = Curve.from_returns("both", [0, 100, 200], [[nan, -200.0, inf], [-100.0, -300.0, nan]])
    assert (both.value[:2], both.low[:2], both.high[:2]) == ((-100, -250), (-100, -300), (-100, -200))
    assert math.isnan(both.value[2])
    shown = words_of(write_learning_curves(tmp_path / "a", [replace(both, result="mean return -5")])[0])
    assert "both mean return -5, last evaluation not finite" in shown
    assert "−300" in shown
    none = Curve.from_returns("none", [0, 100], [[nan, nan]])
    shown = words_of(write_learning_curves(tmp_path / "b", [none])[0])
    assert "none last evaluation not finite" in shown
    assert "−1.0" in shown


def test_more_curves_than_colours_are_told_apart(tmp_path: Path) -> None:
    """The first and the seventh have another line and marker, in the plot and before their labels, and no
    bands cover each other.
    """
    curves = [Curve.from_rates(f"run{i}", [0, 8], [SuccessRate(k, 20) for k in (i, 20)]) for i in range(7)]
    forms = [curve_form(i, training=False) for i in range(20)]
    assert len({tuple(form.items()) for form in forms}) == 20
    assert "--" not in {form["linestyle"] for form in forms}
    seven = write_learning_curves(tmp_path / "seven", curves)[0].read_text()
    assert seven.count("stroke-dasharray") == 2
    assert "PolyCollection" not in seven
    assert "FillBetweenPolyCollection" in write_learning_curves(tmp_path / "five", curves[:5])[0].read_text()


@pytest.mark.parametrize("count", [8, 20, 40])
def test_labels_of_many_curves_stay_beside_the_axis(count: int, tmp_path: Path) -> None:
    """All curves end at 0. The plot grows with them, so that the labels keep their distance."""
    curves = [Curve.from_rates(f"run{i}", [0, 8], [SuccessRate(0, 20)] * 2) for i in range(count)]
    svg = write_learning_curves(tmp_path / "many", curves)[0]
    places = {
        "".join(each.itertext()).split("  ")[0]: each
        for each in ET.parse(svg).iter()
        if each.tag.endswith("}text")
    }
    heights = [float(places[f"run{i}"].attrib["y"]) for i in range(count)]
    assert max(heights) < float(places["Environment steps"].attrib["y"]) - 20.0
    apart = np.diff(sorted(heights))
    assert apart.min() > 14.0


@pytest.mark.parametrize(
    ("value", "end", "shown"),
    [(0, 100, "0"), (25, 100, "25"), (1000, 1000, "1000"), (500, 2000, "0.5k"), (40_000, 999_999, "40k"),
     (200_000, 1_000_000, "0.2M"), (2_000_000, 2_500_000, "2M")],
)  # fmt: skip
def test_steps_are_shown_in_the_unit_of_their_axis(value: float, end: float, shown: str) -> None:
    """Short runs have no 0.025k, and long ones no 2000k."""
    assert step_words(value, end) == shown


def test_missing_curve_is_an_error(tmp_path: Path) -> None:
    """A run of train has no setting for evaluations: the error names the verb whose runs have curves."""
    with pytest.raises(ConfigError, match="Give runs of robo-rl finetune"):
        write_learning_curves(tmp_path / "a", [])
