"""`robo-rl compare`: learning curves, their bands and captions, of hand-written runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main
from robo_rl.apps.compare import curve_of, read_group, short_names, training_curve
from robo_rl.runs.learning_curve import EpisodesInTraining
from tests.apps.written_runs import write_run


def test_compare_says_what_the_plot_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels are the printed success; bands have a caption; an unfinished run is named."""
    write_run(tmp_path / "one", 1, [2, 5])
    write_run(tmp_path / "two", 2, [2, 6])
    (tmp_path / "two" / "results.json").write_text(json.dumps({"policy": {"rate": {"k": 4, "n": 4}}}))
    write_run(tmp_path / "stopped", 3, [2])
    for name in ("curve.json", "results.json", "policy"):
        path = tmp_path / "stopped" / name
        path.rmdir() if path.is_dir() else path.unlink()
    names = [str(tmp_path / name) for name in ("one", "two", "stopped")]
    assert main(["compare", *names, f"out={tmp_path / 'plot'}"]) == 0
    said = capsys.readouterr().out
    assert f"Not in the plot: {tmp_path / 'stopped'} (not finished; resume=true continues it)" in said
    drawn = (tmp_path / "plot.svg").read_text()
    assert "4/4 = 100 %" in drawn
    assert "Bands: 95 % intervals" in drawn


def test_compare_draws_single_runs_and_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of seeds is one curve, with the mean of its runs' rates."""
    write_run(tmp_path / "one", 1, [2, 5])
    write_run(tmp_path / "seeds" / "seed=1", 1, [2, 9])
    write_run(tmp_path / "seeds" / "seed=2", 2, [1, 4])
    plot = tmp_path / "plot"
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "seeds"), f"out={plot}"]) == 0
    said = capsys.readouterr().out
    assert "5/10 = 50 % [24, 76]" in said  # Wilson
    assert "65 %, mean of 2 runs (90 % and 40 %)" in said
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    assert (tmp_path / "plot.png").is_file()


def test_labels_are_paths_below_the_common_folder() -> None:
    """A long path would squeeze the axes to nothing."""
    assert short_names(["runs/a/one", "runs/b"]) == ["a/one", "b"]
    assert short_names(["runs/same", "runs/same2"]) == ["same", "same2"]
    long = short_names(["runs/" + 60 * "x" + "1", "runs/b"])[0]
    assert len(long) == 32
    assert long.endswith("x1")


def test_seeds_have_an_interval_over_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three seeds with 10, 10 and 1 of 10: pooled episodes would give [52, 84], but runs vary far more."""
    for seed, solved in enumerate((10, 10, 1)):
        write_run(tmp_path / "seeds" / f"seed={seed}", seed, [2, solved])
    write_run(tmp_path / "one", 1, [2, 5])
    plot = f"out={tmp_path / 'plot'}"
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "seeds"), plot]) == 0
    assert "70 %, mean of 3 runs [0, 100]" in capsys.readouterr().out
    assert "Student's t over three or more runs" in " ".join((tmp_path / "plot.svg").read_text().split())


def test_two_seeds_are_drawn_without_a_band(tmp_path: Path) -> None:
    """Two values hold no useful interval: t of one degree of freedom is 12.7."""
    for seed, solved in enumerate((4, 9)):
        write_run(tmp_path / f"seed={seed}", seed, [2, solved])
    curve = curve_of("seeds", read_group(str(tmp_path)))
    assert curve is not None
    assert curve.low == curve.value == curve.high == (0.2, 0.65)


def train_only(path: Path, solved: list[int]) -> None:
    """Files of a run of `method=auto`: an episode every 100 steps, and no evaluation."""
    write_run(path, 1, [0])
    curve = {"env_steps": [], "rates": [], "returns": [], "train_cpu_s": 1.0}
    (path / "curve.json").write_text(json.dumps(curve))
    (path / "results.json").write_text(json.dumps({"policy": {"rate": {"k": 8, "n": 10}}}))
    (path / "policy" / "evaluation.json").write_text(json.dumps({"k": 8, "n": 10, "env": "arm6/reach"}))
    rows = [{"step": 100 * (i + 1), "train/success": value} for i, value in enumerate(solved)]
    lines = [{"step": 50, "critic/loss": 1.0}, *rows]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_run_without_evaluations_shows_its_training_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of the default method, auto: dashed, named, and alone; the label is the final measurement."""
    train_only(tmp_path / "auto", 20 * [0] + 20 * [1])
    assert main(["compare", str(tmp_path / "auto"), f"out={tmp_path / 'plot'}"]) == 0
    said = capsys.readouterr().out
    assert f"Dashed, of training episodes: {tmp_path / 'auto'} (no evaluation during training)" in said
    assert "Not in the plot" not in said
    drawn = " ".join((tmp_path / "plot.svg").read_text().split())
    assert "Dashed: training episodes" in drawn
    assert "stroke-dasharray" in drawn
    assert "8/10 = 80 %" in drawn
    assert "Learning curves, arm6/reach" in drawn
    assert "Bands" not in drawn


def test_training_episodes_are_means_of_windows(tmp_path: Path) -> None:
    """Twenty windows of equal length; several seeds up to the shorter one, and their mean."""
    train_only(tmp_path / "a", 20 * [0] + 20 * [1])
    train_only(tmp_path / "b", 60 * [1])
    one = training_curve("a", read_group(str(tmp_path / "a")))
    assert one is not None
    assert one.env_steps == tuple(range(200, 4001, 200))
    assert one.value == (0.0,) * 10 + (1.0,) * 10
    both = training_curve("both", read_group(str(tmp_path)))
    assert both is not None
    assert both.value == (0.5,) * 10 + (1.0,) * 10
    assert both.low == both.high == both.value


def test_a_window_without_an_episode_keeps_the_value_before() -> None:
    episodes = EpisodesInTraining((150, 160, 450), (0.0, 1.0, 1.0), True)
    assert episodes.means([100, 200, 300, 400, 500]) == [0.5, 0.5, 0.5, 0.5, 1.0]


def test_the_caption_names_the_bands_that_are_drawn(tmp_path: Path) -> None:
    """Those over seeds only where there are seeds."""
    write_run(tmp_path / "one", 1, [2, 5])
    assert main(["compare", str(tmp_path / "one"), f"out={tmp_path / 'plot'}"]) == 0
    drawn = (tmp_path / "plot.svg").read_text()
    assert "Wilson over the episodes of one run" in drawn
    assert "Student" not in drawn


def test_the_caption_names_no_bands_where_none_are_drawn(tmp_path: Path) -> None:
    """More than five curves have none."""
    names = [str(tmp_path / f"run{seed}") for seed in range(6)]
    for seed, name in enumerate(names):
        write_run(Path(name), seed, [2, 5])
    assert main(["compare", *names, f"out={tmp_path / 'plot'}"]) == 0
    assert "Bands" not in (tmp_path / "plot.svg").read_text()


def test_the_caption_counts_the_runs_that_have_a_curve(tmp_path: Path) -> None:
    """Runs without a curve are not counted: two curves have no band, and a single one has Wilson's."""
    for seed in (1, 2, 3):
        write_run(tmp_path / "seeds" / str(seed), seed, [2, 5])
    for missing, bands in ((3, ""), (2, "Bands: 95 % intervals, Wilson over the episodes of one run.")):
        (tmp_path / "seeds" / str(missing) / "curve.json").unlink()
        assert main(["compare", str(tmp_path / "seeds"), f"out={tmp_path / 'plot'}"]) == 0
        drawn = " ".join((tmp_path / "plot.svg").read_text().split())
        assert "Student" not in drawn
        assert bands in drawn
        assert bands or "Bands" not in drawn


@pytest.mark.parametrize("given", ["lr0.1", "lr0.1.svg", "lr0.1.png"])
def test_a_point_in_the_name_of_the_plot_is_no_suffix(tmp_path: Path, given: str) -> None:
    """The last part of lr0.1 is no suffix; two plots of a sweep had the same name."""
    write_run(tmp_path / "one", 1, [2, 5])
    assert main(["compare", str(tmp_path / "one"), f"out={tmp_path / 'plots' / given}"]) == 0
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"lr0.1.svg", "lr0.1.png"}


def test_dollars_in_a_name_are_drawn(tmp_path: Path) -> None:
    """Matplotlib would take what is between them for mathematics."""
    write_run(tmp_path / "a$b_c$", 1, [2, 5])
    assert main(["compare", str(tmp_path / "a$b_c$"), f"out={tmp_path / 'plot'}"]) == 0
    assert ">a$b_c$</text>" in (tmp_path / "plot.svg").read_text()


@pytest.mark.parametrize("words", [["compare"], ["compare", "runs=[]"], ["compare", "only_one"]])
def test_compare_needs_a_run(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence, not a traceback."""
    assert main(words) == 2
    assert "robo-rl: " in capsys.readouterr().err
