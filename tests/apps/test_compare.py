"""Sweeps, the list of runs and their comparison, on small runs and hand-written folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from robo_rl.apps.cli.main import main
from robo_rl.apps.cli.multirun import expand_sweeps
from robo_rl.apps.compare import curve_of, read_group, short_names, training_curve
from robo_rl.apps.list_runs import columns
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import ConfigError
from robo_rl.runs.history import PastRun, differing
from robo_rl.runs.learning_curve import EpisodesInTraining
from robo_rl.runs.run_dir import RunDir


def write_run(path: Path, seed: int, solved: list[int]) -> None:
    """Files of a fine-tuning run: evaluations of 10 episodes every 100 steps."""
    (path / "policy").mkdir(parents=True)
    (path / "run.json").write_text("{}")
    (path / "config.yaml").write_text(
        yaml.safe_dump({"seed": seed, "out": str(path), "method": {"name": "sac"}})
    )
    rate = {"k": solved[-1], "n": 10}
    (path / "results.json").write_text(json.dumps({"policy": {"rate": rate}}))
    steps = [100 * i for i in range(len(solved))]
    curve = {"env_steps": steps, "rates": [[k, 10] for k in solved], "returns": solved, "train_cpu_s": 1.0}
    (path / "curve.json").write_text(json.dumps(curve))


def test_each_combination_of_a_sweep_has_its_folder() -> None:
    """Two seeds times two rates; a list and a path with a comma are no sweeps."""
    words = ["out=runs/x", "seed=range(1,3)", "lr=1e-3,1e-4", "hidden=[8,8]", "base=a b/c"]
    runs = expand_sweeps("train", words)
    assert runs[1] == ["out=runs/x/seed=1,lr=1e-4", "seed=1", "lr=1e-4", "hidden=[8,8]", "base=a b/c"]
    assert len(runs) == 4
    with pytest.raises(ConfigError, match="needs a setting with several values"):
        expand_sweeps("train", ["out=r", "seed=1"])
    with pytest.raises(ConfigError, match=r"by out=\.\.\."):
        expand_sweeps("train", ["seed=1,2"])


def test_sweep_trains_and_is_listed(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`train -m seed=1,2` gives two policies; `runs` shows the seed as the differing setting."""
    small = ["steps=2", "batch_size=4", "net.width=8", "net.depth=1"]
    assert main(["train", "-m", "seed=1,2", f"data={dataset}", f"out={tmp_path / 'r'}", *small]) == 0
    assert (tmp_path / "r" / "seed=2" / "policy").is_dir()
    capsys.readouterr()
    assert main(["runs", f"path={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["seed=1", "seed=2"]
    assert all("not measured" in line for line in lines)


def test_a_failed_combination_does_not_end_the_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of three is refused: the third runs, and the end says which failed and why, with code 2."""
    words = ["train", "-m", f"data={dataset}", f"out={tmp_path}", "steps=2", "net.width=8", "net.depth=1"]
    assert main([*words, "batch_size=4,-1,8"]) == 2
    assert (tmp_path / "batch_size=8" / "policy").is_dir()
    said = capsys.readouterr().err.splitlines()
    assert said[-2] == "robo-rl: 1 of 3 runs failed:"
    assert said[-1].startswith(f"  {tmp_path}/batch_size=-1: batch_size=-1")


def test_a_sweep_is_continued_by_one_command(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """seed=1 is finished, seed=2 was stopped before its end, and seed=3 has not begun."""
    words = ["train", f"data={dataset}", "steps=4", "checkpoint_every=2", "net.width=8", "net.depth=1"]
    for seed in (1, 2):
        assert main([*words, f"seed={seed}", f"out={tmp_path}/seed={seed}"]) == 0
    weights = (tmp_path / "seed=2/policy/weights.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "seed=2/policy")
    first = (tmp_path / "seed=1/policy/weights.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert main([words[0], "-m", *words[1:], "seed=1,2,3", f"out={tmp_path}", "resume=true"]) == 0
    assert "seed=1 is finished and was skipped" in capsys.readouterr().out
    assert (tmp_path / "seed=1/policy/weights.safetensors").stat().st_mtime_ns == first
    assert (tmp_path / "seed=2/policy/weights.safetensors").read_bytes() == weights
    assert (tmp_path / "seed=3/policy").is_dir()


def test_a_finished_run_with_other_settings_fails_in_a_resumed_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the setting is left out now; a setting that may change, such as threads, does not count."""
    words = ["train", "-m", f"data={dataset}", f"out={tmp_path}", "net.width=8", "net.depth=1", "seed=1,2"]
    monkeypatch.setattr("sys.argv", ["robo-rl", *words, "steps=2"])  # kept in run.json
    assert main([*words, "steps=2"]) == 0
    for changed in (["steps=3"], []):
        capsys.readouterr()
        assert main([*words, *changed, "resume=true"]) == 2
        said = capsys.readouterr()
        assert "2 of 2 runs failed" in said.err
        assert "skipped" not in said.out
        assert f"{tmp_path}/seed=1 was started with steps=2" in said.err
    assert main([*words, "steps=2", "threads=1", "resume=true"]) == 0
    assert capsys.readouterr().out.count("is finished and was skipped") == 2


def test_a_setting_that_left_the_file_fails_in_a_resumed_sweep(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is the same; the run was made with a setting that its config= no longer holds."""
    file, out = tmp_path / "mine.yaml", tmp_path / "runs"
    words = ["train", "-m", f"config={file}", f"data={dataset}", f"out={out}", "seed=1,2"]
    file.write_text("steps: 2\nnet: {name: mlp, width: 8, depth: 1}\nlr: 0.002\n")
    monkeypatch.setattr("sys.argv", ["robo-rl", *words])  # kept in run.json
    assert main(words) == 0
    assert main([*words, "resume=true"]) == 0
    assert capsys.readouterr().out.count("is finished and was skipped") == 2
    file.write_text("steps: 2\nnet: {name: mlp, width: 8, depth: 1}\n")
    assert main([*words, "resume=true"]) == 2
    assert f"{out}/seed=1 was started with lr=0.002" in capsys.readouterr().err


def test_runs_counts_the_flights_of_all_trained_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """results.json of `fly`: the flights of two trained policies count, those of a controller do not."""
    write_run(tmp_path / "fly", 1, [0])
    held = [("policy", 5), ("policy", 9), ("pid", 10)]
    rows = [{"name": name, "held": {"k": k, "n": 10}} for name, k in held]
    (tmp_path / "fly" / "results.json").write_text(json.dumps({"rows": rows}))
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert "14/20 = 70 %" in capsys.readouterr().out


def test_runs_shows_success_and_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, and as JSON lines for scripts."""
    write_run(tmp_path / "a", 1, [2, 9])
    write_run(tmp_path / "b", 2, [2, 4])
    assert main(["runs", f"path={tmp_path}", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["success"]["k"], first["settings"]) == (9, {"seed": 1})
    assert (second["success"]["n"], second["settings"]) == (10, {"seed": 2})
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert "9/10 = 90 %" in capsys.readouterr().out
    assert main(["runs", f"path={tmp_path / 'nothing'}"]) == 2
    assert "nothing does not exist; the nearest existing folder is" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["runs", f"path={tmp_path / 'empty'}"]) == 2
    assert "is an empty folder, and no run is in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("results.json", '{"a":', "results.json is not valid JSON"),
        ("results.json", '{"policy": {"rate": {"k": 3}}}', "cannot be read (KeyError: 'n')"),
        ("results.json", '{"policy": {"rate": {"k": 3, "n": 0}}}', "n >= 1"),
        ("curve.json", '{"env_steps": 5}', "cannot be read (KeyError"),
        ("config.yaml", "- 1", "config.yaml holds no settings"),
    ],
)
def test_a_damaged_run_hides_no_other(
    name: str, content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sound runs are listed, and a sentence names the damaged one; scripts find it, too."""
    for each in ("a", "b", "c"):
        write_run(tmp_path / each, 1, [2, 9])
    (tmp_path / "b" / name).write_text(content)
    assert main(["runs", f"path={tmp_path}"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == [str(tmp_path / "a"), str(tmp_path / "c")]
    assert said.err.startswith(f"{tmp_path / 'b'} is damaged and not listed: ")
    assert words in said.err
    assert main(["runs", f"path={tmp_path}", "json=true"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["path"][-1] for line in said.out.splitlines()] == ["a", "c"]
    assert words in said.err
    assert main(["runs", f"path={tmp_path / 'b'}"]) == 2
    assert words in capsys.readouterr().err


def test_runs_without_a_success_show_their_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Listed, as JSON and compared: such an environment never succeeds, which is not 0 %."""
    for name, total in (("a", -10.0), ("b", -30.0)):
        write_run(tmp_path / name, 1, [0])
        measured = {"rate": {"k": 0, "n": 2}, "returns": [total, total - 2.0], "reports_success": False}
        (tmp_path / name / "results.json").write_text(json.dumps({"policy": measured}))
    assert main(["runs", f"path={tmp_path}"]) == 0
    assert [line.split()[1:] for line in capsys.readouterr().out.splitlines()] == [
        ["mean", "return", "-11"],
        ["mean", "return", "-31"],
    ]
    assert main(["runs", f"path={tmp_path / 'a'}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["success"], shown["mean_return"]) == (None, -11.0)
    assert main(["compare", str(tmp_path), str(tmp_path / "a"), f"out={tmp_path / 'plot'}"]) == 0
    assert "mean return -21, mean of 2 runs" in capsys.readouterr().out


def test_returns_that_are_not_finite_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mean is of the others, in `runs` and `compare`; without any other, there is none."""
    for name, returns in (("a", [-10.0, None, -12.0]), ("b", [None]), ("noted", [])):
        write_run(tmp_path / name, 1, [0])
        measured = {"rate": None, "returns": returns, "reports_success": False}
        (tmp_path / name / "results.json").write_text(json.dumps({"policy": measured}))
    (tmp_path / "noted" / "policy" / "evaluation.json").write_text('{"mean_return": null, "n": 3}')
    assert main(["runs", f"path={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "mean return -11, without 1 return not finite" in shown
    assert shown.count("mean return not finite") == 2
    assert main(["compare", str(tmp_path / "a"), str(tmp_path), f"out={tmp_path / 'plot'}"]) == 0
    assert "mean return -11, mean of 1 run, without 3 returns not finite" in capsys.readouterr().out


def test_runs_shows_the_steps_that_were_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`env_steps` and `num_envs` of the command line replace the method's own, which are not shown then."""
    own = {"name": "sac", "env_steps": 1_000_000, "default_envs": 4}
    for name, given in {"own": {}, "few": {"env_steps": 2000, "method": own | {"default_envs": 8}}}.items():
        write_run(tmp_path / name, 1, [2, 9])
        settings = {"seed": 1, "method": own, "env_steps": None, "num_envs": 1} | given
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main(["runs", f"path={tmp_path}"]) == 0
    shown = [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown == ["env_steps=2000", "env_steps=1000000"]


def test_runs_of_several_verbs_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run is comes first; a setting that is equal in all runs that have it is not shown."""
    many = {f"learner.k{i}": 1 for i in range(9)}
    for name, settings in {
        "base": {"net": {"lr": 1}, "data": "data/a", "seed": 1, "steps": 9},
        "res": {"net": {"lr": 1}, "base": "runs/base", "method": {"name": "residual"} | many, "seed": 1},
        "steer": {"base": "runs/base", "method": {"name": "steering"} | dict.fromkeys(many, 2), "seed": 1},
    }.items():
        write_run(tmp_path / name, 1, [2, 9])
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(settings | {"out": name}))
    assert main(["runs", f"path={tmp_path}", "settings=3"]) == 0
    shown = [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == "data=data/a"
    assert shown[1].startswith("method=residual base=runs/base method.learner.k0=1 (and 8 more)")
    assert shown[2].startswith("method=steering base=runs/base method.learner.k0=2 (and 8 more)")


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


def past(path: str, verb: str, **settings: Any) -> PastRun:
    """A finished run without a success."""
    return PastRun(Path(path), settings, None, None, True, verb=verb, started="2026-05-01T12:00:00Z")


def test_runs_compares_the_settings_of_one_verb_alone() -> None:
    """Defaults of different verbs differ, and nobody chose them; what a run is made of is always shown."""
    base = past("base", "train", data="data/peg", steps=2000, num_envs=1, **{"net.name": "mlp"})
    again = past("again", "train", data="data/peg", steps=5000, num_envs=1, **{"net.name": "mlp"})
    head = past("head", "distill", teacher="base", steps=4000, num_envs=10, **{"net.name": "unet1d"})
    assert differing([base, again, head]) == [
        {"data": "data/peg", "steps": 2000},
        {"data": "data/peg", "steps": 5000},
        {"teacher": "base"},
    ]


def test_runs_shows_verb_and_day_where_they_fit() -> None:
    runs = [past("runs/base", "train"), past("runs/tuned", "finetune")]
    outcome = f"{'not measured':<28}"
    wide = [f"runs/base   train     {outcome}  2026-05-01", f"runs/tuned  finetune  {outcome}  2026-05-01"]
    assert columns(runs, 80) == wide
    assert [line.split()[-1] for line in columns(runs, 60)] == ["measured", "measured"]
    assert columns([past("runs/old", "")], 80) == [f"runs/old  {outcome}  2026-05-01"]


def test_a_run_records_its_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of older versions, which did not, are told apart by their settings."""
    with RunDir.create(tmp_path / "new", DistillVerb(teacher="t", out="o")):
        pass
    assert PastRun.read(tmp_path / "new").verb == "distill"
    write_run(tmp_path / "old", 1, [0])
    (tmp_path / "old/config.yaml").write_text("{final_episodes: 3, data: null}")
    assert PastRun.read(tmp_path / "old").verb == "finetune"
    assert main(["runs", f"path={tmp_path / 'old'}", "json=true"]) == 0
    assert json.loads(capsys.readouterr().out)["verb"] == "finetune"
