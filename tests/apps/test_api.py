"""`import robo_rl as rr`: lazy, typed, and the same settings and sentences as the command line."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import robo_rl as rr
from robo_rl.apps.cli.from_python import words
from robo_rl.conf.fields import settings
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError
from tests.policies.dot_video import record_dots


def test_import_needs_no_torch() -> None:
    """`rr.__all__` needs neither torch nor a simulator."""
    heavy = "{'torch', 'numpy', 'hydra', 'sim'}"
    code = f"import sys, robo_rl; dir(robo_rl); print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names() -> None:
    """The table of names and the module agree."""
    assert all(getattr(rr, name).__doc__ for name in rr.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'trian', expected one of: Bundle, "):
        rr.trian  # type: ignore[attr-defined]  # noqa: B018


def test_train_evaluate_and_distil(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train, evaluate and distil return objects with rates and paths, and print nothing."""
    net = {"name": "mlp", "width": 16, "depth": 1, "time_dim": 8}
    run = rr.train(
        data=dataset, out=tmp_path / "base", steps=2, batch_size=8, net=net, **{"process.steps": 2}
    )
    measured = rr.evaluate(run, episodes=2, num_envs=2, max_episode_steps=4, against=run.policy_path)
    assert measured.rate.n == 2
    said, told = str(measured).splitlines(), repr(measured)
    assert said[0] == f"{run.policy_path} on {measured.env}: {measured.policy}"
    assert len(said) == 5
    assert "seeds=" not in told
    assert measured.difference is not None
    assert measured.difference.p_value == 1.0
    head = rr.distill(
        run,
        out=tmp_path / "head",
        net=net,
        rollout_steps=100,
        rounds=0,
        steps=2,
        eval_episodes=2,
        num_envs=2,
        max_episode_steps=4,
    )
    assert head.rate is not None
    assert head.before is not None
    assert capsys.readouterr() == ("", "")


def test_collect_returns_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = rr.collect("arm6/reach", out=tmp_path / "reach", episodes=2, noise=0.0)
    assert [episode.meta.success for episode in data] == [True, True]
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ConfigError, match="has no setting 'episode'"):
        rr.collect("arm6/reach", out=tmp_path / "other", episode=2)


def test_pretrain_gives_train_an_encoder(tmp_path: Path) -> None:
    data = record_dots(tmp_path / "dots", 2)
    shape = {"widths": [4, 8], "features": 6, "keypoints": 3}
    video = rr.pretrain(data=[data], out=tmp_path / "video", steps=1, batch_size=2, image=shape)
    image = shape | {"init": video}
    assert rr.train(data=data, out=tmp_path / "base", steps=1, batch_size=2, image=image).policy_path.is_dir()


@pytest.mark.long
def test_export_and_load(run: Path, dataset: Path, tmp_path: Path) -> None:
    """Exported, and loaded as a contract and as a policy."""
    bundle = rr.export(run, out=tmp_path / "bundle", noise="zero")
    assert rr.load_bundle(tmp_path / "bundle").env == bundle.env == rr.Dataset(dataset).spec
    assert rr.load_policy(bundle).env == bundle.env.name
    own = {"episodes": 1, "keep": "all", "max_episode_steps": 3, "num_envs": 1, "num_workers": 0}
    assert len(rr.collect(policy=bundle, out=tmp_path / "own", **own)) == 1  # in the bundle's environment


def test_finetuning_returns_both_rates(run: Path, dataset: Path, tmp_path: Path) -> None:
    """A few steps of a residual on the base, measured together with the base on the same episodes."""
    tuned = rr.finetune(
        base=rr.Run(run),
        demos=rr.Dataset(dataset),
        out=tmp_path / "tuned",
        method={"name": "residual", "map": {"kind": "residual"}, "base_steps": 4, "burn_in": 1},
        env_steps=12,
        num_envs=2,
        eval_every=0,
        eval_episodes=1,
        final_episodes=2,
        max_episode_steps=4,
    )
    assert tuned.rate is not None
    assert tuned.before is not None
    assert (tuned.rate.n, tuned.before.n) == (2, 2)
    assert isinstance(tuned.load_policy("cpu").policy.obs_steps, int)


def test_errors_equal_those_of_the_command_line(dataset: Path, tmp_path: Path) -> None:
    """An unknown or impossible keyword argument."""
    with pytest.raises(ConfigError, match=r"no setting 'stesp'\. Did you mean 'steps'\?"):
        rr.train(data=dataset, out=tmp_path / "r", stesp=3)
    with pytest.raises(ConfigError, match=r"batch_size=0 cannot be used"):
        rr.train(data=dataset, out=tmp_path / "r", batch_size=0)
    assert not (tmp_path / "r").exists()


def test_objects_stand_for_their_paths(dataset: Path, run: Path) -> None:
    """Runs, datasets, loaded policies and paths as values, in lists, and in nested settings."""
    known = settings(TrainConfig)
    store, base = rr.Dataset(dataset), rr.Run(run)
    given = {"data": [store, Path("b")], "init": base.load_policy("cpu"), "image": {"init": base}}
    assert list(words(given, known)) == [
        f"data=[{dataset},b]",
        f"init={run}/policy",
        f"image.init={run}",
    ]
    given = {"steps": np.int64(3), "net": {"name": "unet1d", "widths": (64, 128)}, "lr": np.float64(0.5)}
    assert list(words(given, known)) == ["steps=3", "net.name=unet1d", "net.widths=[64,128]", "lr=0.5"]


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data", {"a": 1}, "data is a dict; give text or a path, or a Run, a Dataset or a Bundle"),
        ("data", ["a", {1}], "data is a set; give text or a path"),
        ("init", rr, "init is a module; give text or a path"),
        ("steps", [{}], "steps is a dict; give: whole number >= 1."),
        ("logger", {}, "logger is a dict; give: tensorboard | wandb | mlflow."),
        ("stesp", object(), "robo-rl train has no setting 'stesp'."),
    ],
)
def test_objects_of_other_types_are_refused(key: str, value: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        rr.train(**{"data": "data", "out": tmp_path / "run", key: value})  # type: ignore[arg-type]


def test_make_env_by_name() -> None:
    """Environment of a name, with its lanes."""
    env = rr.make_env("quad/hover", 3)
    assert env.reset(iter(range(3)))["state"].shape[0] == 3
    env.close()


@pytest.mark.wrong_types
@pytest.mark.parametrize("name", ["arm6/reach", "quad/hover", "arm/reach"])
def test_environments_take_seeds_in_every_form(name: str) -> None:
    """Episodes are equal for equal seeds; after wrong seeds the environment goes on where it was."""
    env = rr.make_env(name, 2)
    first = env.reset(0)["state"]
    action = torch.zeros(2, env.spec.action.dim)
    after = env.step(action)[0]["state"]
    assert torch.equal(env.reset(0)["state"], first)
    for wrong in (None, "ab", [0], 0.5, iter(["a", 1]), iter([1])):
        with pytest.raises((TypeError, rr.RoboRLError)):
            env.reset(wrong)  # type: ignore[arg-type]
    assert torch.equal(env.step(action)[0]["state"], after)
    assert torch.equal(env.reset([3, 4])["state"], env.reset(iter([3, 4]))["state"])
    env.close()


@pytest.mark.wrong_types
@pytest.mark.parametrize("noise", ["0", True, float("nan"), [0.0]])
def test_noise_of_a_loaded_policy_is_a_number(noise: Any) -> None:
    """Refused before anything is loaded."""
    with pytest.raises(rr.RoboRLError, match=r"cannot be used, expected: number >= 0, or None"):
        rr.load_policy("nowhere", noise=noise)


def test_loaded_policy_acts(run: Path) -> None:
    """A batch of observations gives actions in the environment's units; noise=0 gives every lane the same."""
    policy = rr.load_policy(rr.Run(run), device="cpu", noise=0.0)
    env = rr.make_env(policy.env, 2)
    obs = env.reset([5, 5])
    action = policy.act(obs)
    torch.testing.assert_close(action[0], action[1])
    *_, info = env.step(action)
    policy.reset(info["final_mask"], seeds=info["next_seed"])
    noisy = rr.Run(run).load_policy("cpu").act(obs)
    assert not torch.allclose(noisy[0], noisy[1])
    env.close()
    with pytest.raises(rr.RoboRLError, match=r"^noise=-1 cannot be used"):
        rr.load_policy(run, noise=-1)


def test_lazy_table_matches_the_api() -> None:
    """Every name of `robo_rl.api` is available as `rr.<name>`, known to type checkers, and no other is."""
    from robo_rl import api

    tree = ast.parse(Path(str(rr.__file__)).read_text())
    typed = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "robo_rl.api"
        for alias in node.names
    ]
    assert typed == rr.__all__ == api.__all__ == sorted(api.__all__)
    own = {
        name
        for name, value in vars(api).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == api.__name__
    }
    assert own - {"T"} <= set(api.__all__)
    assert all(getattr(rr, name) is getattr(api, name) for name in rr.__all__)


def test_what_the_system_refuses_is_an_error_of_the_package(dataset: Path, tmp_path: Path) -> None:
    """A script catches rr.RoboRLError alone, with the sentence that the command line prints."""
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    for progress in (False, True):
        with pytest.raises(rr.RoboRLError, match=r"runs is a link to .*disk, which does not exist"):
            rr.train(data=dataset, out=tmp_path / "runs" / "a", steps=1, progress=progress)
