"""Benchmark lines, and the tables of README and results made from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import common
from benchmarks.readme_table import (
    BEGIN,
    END,
    OTHER,
    for_docs,
    for_readme,
    headline_table,
    load,
    main,
    rewrite,
    shown,
    topic_of,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common._options, "quick", False)
    monkeypatch.setattr(common._options, "out", None)


def line(**values: Any) -> str:
    base = {
        "name": "a/b",
        "value": 1.0,
        "unit": "x",
        "machine": "cpu, 2 cores",
        "commit": "abc",
        "date": "2026-01-01",
    }
    return json.dumps(base | values)


def test_emit_prints_one_json_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, value, unit, where and when; --quick marks the line, --out keeps it."""
    out = tmp_path / "results.jsonl"
    common.parser("test").parse_args(["--quick", "--out", str(out)])
    common.emit("windows/raw/per_cpu_s", 3.0, "windows/cpu-s", batch=8)
    said = json.loads(capsys.readouterr().out)
    assert said | {"name": "windows/raw/per_cpu_s", "value": 3.0, "batch": 8, "quick": True} == said
    assert {"machine", "commit", "unit", "torch", "date"} <= said.keys()
    assert json.loads(out.read_text()) == said


def test_non_finite_values_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has neither NaN nor infinity."""
    common.emit("race/lap_time_s", 3.2, "s", best_s=float("inf"), per_seed=[3.2, float("nan")])
    common.emit("race/lap_time_s", float("nan"), "s")
    said = capsys.readouterr()
    (text,) = said.out.splitlines()
    found = json.loads(text, parse_constant=pytest.fail)
    assert (found["value"], found["best_s"], found["per_seed"]) == (3.2, None, [3.2, None])
    assert "no finite value" in said.err


def test_quick_and_full_runs_are_separate(tmp_path: Path) -> None:
    """Full and quick runs must not reuse each other's results."""
    common.parser("test").parse_args([])
    assert common.own_folder(tmp_path) == tmp_path
    (tmp_path / "results.json").write_text("full")
    common.parser("test").parse_args(["--quick"])
    first, second = common.own_folder(tmp_path), common.own_folder(tmp_path)
    (first / "results.json").write_text("quick")
    assert len({first, second, tmp_path}) == 3
    assert list(second.iterdir()) == []
    assert (tmp_path / "results.json").read_text() == "full"


def test_quick_run_deletes_its_folder() -> None:
    """Its folder is deleted at the end of the program."""
    code = (
        "import common, pathlib; common.parser('test').parse_args(['--quick'])\n"
        "own = common.own_folder(pathlib.Path('runs')); (own / 'policy').mkdir(); print(own)"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])}
    ran = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True)
    assert not Path(ran.stdout.strip()).exists()
    assert Path(ran.stdout.strip()).is_absolute()


def test_out_without_a_value_is_the_results_folder() -> None:
    """One file per machine and commit."""
    options = common.parser("test").parse_args(["--out"])
    assert options.out == common.results_file()
    assert options.out.parent == Path(common.__file__).parent / "results"


def test_cpu_seconds_grow_with_work() -> None:
    """A busy loop costs CPU time; sleeping does not."""
    before = common.cpu_seconds()
    sum(i * i for i in range(300_000))
    assert common.cpu_seconds() > before


def test_table_shows_the_newest_full_run(tmp_path: Path) -> None:
    """Quick runs are left out; a later measurement replaces an earlier one of the same name and machine."""
    (tmp_path / "b.jsonl").write_text(
        line(value=2.0, date="2026-02-01") + "\n" + line(value=9.0, date="2026-03-01", quick=True)
    )
    (tmp_path / "a.jsonl").write_text(
        line(value=1.0) + "\n" + line(name="s", value=0.97, k=97, n=100, wilson95=[0.915, 0.99], unit="")
    )
    tables = for_docs(load(tmp_path))
    new = rewrite(f"head\n{BEGIN}\nold\n{END}\ntail\n", tables)
    assert "| `a/b` | 2 x | abc |" in new
    assert "| `s` | 0.97 (97/100, 0.92–0.99) | abc |" in new
    assert "old" not in new
    assert new.startswith("head\n")
    assert new.endswith("tail\n")
    assert rewrite(new, tables) == new


def test_every_kept_line_has_a_topic() -> None:
    """A new benchmark needs a section of docs/results.md."""
    kept = load(ROOT / "benchmarks" / "results")
    assert not [name for lines in kept.values() for name in lines if topic_of(name) == OTHER]


def test_a_topic_has_each_machine_once_and_its_lines_folded(tmp_path: Path) -> None:
    """One heading per topic, not per machine; the long tables do not fill the page."""
    (tmp_path / "a.jsonl").write_text(
        "\n".join(
            line(name=name, machine=machine)
            for machine, name in (("one", "engine/a"), ("one", "node/b"), ("two", "engine/a"))
        )
    )
    page = for_docs(load(tmp_path))
    assert [text for text in page.splitlines() if text.startswith("#")] == ["## Engines", "## Robot side"]
    folded = [text for text in page.splitlines() if text.startswith("<summary>")]
    assert folded == [
        "<summary>one: every line (1)</summary>",
        "<summary>two: every line (1)</summary>",
        "<summary>one: every line (1)</summary>",
    ]


def test_peer_line_does_not_replace_ours(tmp_path: Path) -> None:
    """A peer's line has our name and a later date."""
    (tmp_path / "a.jsonl").write_text(
        line(value=5.0) + "\n" + line(value=1.0, date="2026-02-01", peer="theirs")
    )
    new = for_docs(load(tmp_path))
    assert "| `a/b` | 5 x |" in new
    assert "| `a/b [theirs]` | 1 x |" in new


def test_headlines_stand_beside_their_references() -> None:
    """A name in braces is replaced by that line's value; a row with a missing reference is left out."""
    lines = {
        "hover/first_order/700_updates/position_error_m": {"value": 0.0075, "unit": "m"},
        "hover/pid/position_error_m": {"value": 0.032, "unit": "m"},
    }
    assert headline_table(lines) == ""
    lines["hover/geometric/position_error_m"] = {"value": 0.134, "unit": "m"}
    assert "| hover, position error | 0.0075 m | PID 0.032, geometric 0.134 |" in headline_table(lines)


def test_a_method_stands_beside_the_bases_of_its_own_seeds() -> None:
    """Two seeds with weak bases, three more with good ones that this method did not run on."""
    lines: dict[str, dict[str, Any]] = {
        "finetune/push/auto/success": {"value": 0.9, "unit": "fraction", "per_seed": [0.85, 0.95]},
        "finetune/push/base/success": {
            "value": 0.6,
            "unit": "fraction",
            "per_seed": [0.2, 0.4, 0.8, 0.8, 0.8],
        },
        "finetune/push/base_zero_noise/success": {"value": 0.7, "unit": "fraction"},
    }
    assert "| base 0.3, without noise 0.7 |" in headline_table(lines)
    lines["finetune/push/auto/base/success"] = {"value": 0.35, "unit": "fraction", "per_seed": [0.25, 0.45]}
    assert "| base 0.35, without noise 0.7 |" in headline_table(lines)


def test_a_seed_without_a_figure_has_a_dash() -> None:
    """If no flight of a seed stayed, the error is undefined."""
    assert shown({"value": 0.02, "unit": "m", "per_seed": [0.02, None]}) == "0.02 m (seeds: 0.02, –)"


def test_demo_table_has_a_row_per_policy(tmp_path: Path) -> None:
    """Success, interval, test, decision time and cost in one row."""
    rate = {
        "k": 98,
        "n": 100,
        "wilson95": [0.93, 0.994],
        "p_vs_base": 1.5e-8,
        "env_steps": 12000,
        "train_cpu_s": 69.3,
    }
    (tmp_path / "a.jsonl").write_text(
        line(name="demo/steered/success", value=0.98, unit="", **rate)
        + "\n"
        + line(name="demo/steered/decision_ms_p50", value=2.85, unit="ms", p99=4.7)
    )
    assert "| noise steering | 98/100 | 0.93–0.99 | 1e-08 | 2.9 / 4.7 | 12,000 | 69 |" in for_docs(
        load(tmp_path)
    )


def test_the_front_table_takes_the_newest_of_several_machines() -> None:
    """One row per headline: value, number of seeds, and the peer of the same machine."""
    slow = {"value": 0.8, "unit": "fraction", "per_seed": [0.7, 0.9], "date": "2026-02-01"}
    fast = {"value": 0.7, "unit": "fraction", "per_seed": [0.7], "date": "2026-01-01"}
    name = "finetune/assembly/auto"
    results: dict[str, dict[str, dict[str, Any]]] = {
        "a": {f"{name}/success": fast, f"{name}/base/success": {"value": 0.3, "unit": "fraction"}},
        "b": {f"{name}/success": slow, f"{name}/base/success": {"value": 0.4, "unit": "fraction"}},
    }
    assert "| 0.8 (2 seeds) | base policy 0.4 |" in for_readme(results)
    assert "0.7" not in for_readme(results)


def test_readme_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """After new results the tables have to be regenerated: `make results`."""
    monkeypatch.setattr("sys.argv", ["readme_table.py", "--check"])
    assert main() == 0
