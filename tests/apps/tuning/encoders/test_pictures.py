"""Learning encoders by the verb: memory, refusals, demonstrations, distillation and export."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.deploy.export import export_policy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main
from robo_rl.apps.tuning.compose import build_map, build_session
from robo_rl.apps.tuning.distill_rounds import new_head
from robo_rl.apps.tuning.encoders.pictures import (
    ReplaySize,
    check_memory,
    check_method,
    check_picture_settings,
    learned_pictures,
    memory_of,
    replay_size,
)
from robo_rl.apps.tuning.stores import store_widths
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.mix import MixConfig, used_fractions
from tests.policies.small import flow_policy
from tests.policies.small_vla import small_vla
from tests.rl.picture_world import METHODS, SPEC, base, base_of, begin, method, observed, session
from tests.rl.worlds import SPEC as STATES

ENV = "arm/reach:cameras=view,image_size=24,state=body"


# -- memory


def test_memory_is_known_before_it_is_taken() -> None:
    """100 decisions in 4 lanes, two rows of history: 25 a lane, in a ring of 25 * 9 / 8 + 4 frames of 360
    bytes and 8 for the age; each decision has states of 2 numbers twice, 2 actions, 1 context twice.
    """
    config = method("residual", env_steps=1000)
    config.replay_capacity = 100
    pictures = learned_pictures(config, base(), "cpu")
    assert pictures is not None
    size = replay_size(config, 4, 1, 2)
    assert size == ReplaySize(25, 28 + 4, 4)
    widths = store_widths(base(), pictures.states_dim, build_map(config.map, base()))
    assert sum(widths.values()) == 2 + 1 + 1 + 1 + 2 + 1
    need = memory_of(size, pictures, widths, [])
    assert need.total == 32 * 4 * (6 * 20 * 3 + 8) + 100 * (4 * (8 + 4) + 4 + 16)
    ring = pictures.ring(size.frames, 4)
    assert sum(table.nbytes for table in [*ring.data.values(), ring.age]) == 32 * 4 * 368


def test_a_run_shorter_than_its_replay_takes_less() -> None:
    """48 steps of 3 lanes are 16 decisions a lane, however many the replay could hold; a method that decides
    once in two steps keeps the frames of both.
    """
    config = method("residual", env_steps=48)
    config.replay_capacity = 1_000_000
    assert replay_size(config, 3, 1, 1).decisions == 16
    config.replay_capacity = 12
    assert replay_size(config, 3, 2, 1).frames == 4 * 2 * 9 // 8 + 4


def test_too_little_memory_is_refused_with_what_fits() -> None:
    """What is needed, what is free, and a replay that then is accepted."""
    config = method("residual", env_steps=10_000_000)
    config.replay_capacity = 1_000_000
    pictures = learned_pictures(config, base(), "cpu")
    assert pictures is not None
    widths = store_widths(base(), pictures.states_dim, build_map(config.map, base()))

    def check(capacity: int) -> None:
        config.replay_capacity = capacity
        check_memory(memory_of(replay_size(config, 4, 1, 2), pictures, widths, []), pictures, {"host": 10**8})

    with pytest.raises(
        ConfigError, match=r"482 MB.*1.45 GB.*100 MB are free.*capacity=69000 at most"
    ) as said:
        check(1_000_000)
    assert "image_size" in str(said.value)
    check(69_000)
    with pytest.raises(ConfigError):
        check(71_000)


def test_a_gpu_is_told_of_pinned_memory() -> None:
    """Frames on the device: the device must hold them, and the host the copies of a checkpoint."""
    config = method("residual", env_steps=10_000_000)
    pictures = learned_pictures(config, base(), "cpu")
    assert pictures is not None
    pictures = replace(pictures, device=torch.device("cuda:0"))
    widths = store_widths(base(), pictures.states_dim, build_map(config.map, base()))
    config.replay_capacity = 1_000_000
    need = memory_of(replay_size(config, 4, 1, 2), pictures, widths, [])
    check_memory(need, pictures, {"device": 10**9, "host": 10**10})
    with pytest.raises(ConfigError, match=r"of cuda:0.*method.frames=host"):
        check_memory(need, pictures, {"device": 10**8, "host": 10**10})
    with pytest.raises(ConfigError, match="while a checkpoint is written"):
        check_memory(need, pictures, {"device": 10**9, "host": 10**9})
    check_memory(need, replace(pictures, on_host=True), {"device": 0, "host": 10**10})


# -- refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": "noise_aliased"}, "off-policy"),
        ({"algorithm": "ppo"}, "off-policy"),
        ({"mix": MixConfig(0.5, 0.5)}, r"Set method\.mix\.base=0 method\.mix\.online=1\."),
        (
            {"mix": MixConfig(0.5, 0.0, 0.25, 0.25)},
            r"method\.mix\.intervention=0 method\.mix\.online=0\.75\.",
        ),
        (
            {"mix": MixConfig(0.2, 0.1, 0.4, 0.3)},
            r"method\.mix\.base=0 method\.mix\.intervention=0 method\.mix\.online=0\.6\.",
        ),
    ],
)
def test_methods_without_pictures_are_refused(change: dict[str, Any], words: str) -> None:
    config = replace(METHODS["steering"], **change)
    with pytest.raises(ConfigError, match=words):
        learned_pictures(config, base(), "cpu")


@pytest.mark.parametrize("name", ["pld", "dawn"])
def test_the_advised_shares_are_accepted(name: str) -> None:
    """Taken alone, `mix.base=0` would leave shares that do not sum to 1."""
    words = [f"method={name}", "method.encoder=learned", "out=unused"]
    with pytest.raises(ConfigError, match=r"method\.mix\.base=0") as said:
        check_method(load_config("finetune", words, FinetuneVerb).method)
    advised = re.findall(r"method\.mix\.\w+=[\d.]+\b", str(said.value))
    method = load_config("finetune", [*words, *advised], FinetuneVerb).method
    check_method(method)
    assert used_fractions(vars(method.mix)) == {"online": 1.0}


def test_a_base_without_pictures_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs pictures"):
        learned_pictures(METHODS["residual"], flow_policy(STATES), "cpu")


def test_a_vision_language_action_base_is_refused_with_the_reason() -> None:
    """It has pictures, but no encoder that critics train."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")
    with pytest.raises(
        ConfigError, match="vision-language-action policy: its pictures are read by the prefix"
    ):
        learned_pictures(METHODS["residual"], small_vla(), "cpu")


@pytest.mark.parametrize(
    ("change", "from_scratch", "says"),
    [
        ({"shift_px": 2}, False, r"method.shift_px=2 has no effect: method.encoder=frozen"),
        ({"frames": "host"}, True, r"method.frames=host has no effect: method.encoder=frozen"),
        (
            {"image": ImageEncoderConfig(crop=0.5)},
            True,
            r"method.image.crop=0.5 has no effect.*set .*=learned",
        ),
        ({"image": ImageEncoderConfig([4, 8]), "encoder": "learned"}, False, r"widths=\[4,8\] .* a copy"),
        (
            {"image": ImageEncoderConfig(far_m=3.0), "encoder": "learned"},
            True,
            r"method.image.far_m=3 has no effect: method.encoder=learned reads no depth",
        ),
        ({"shift_px": 2, "frames": "host", "encoder": "learned"}, False, ""),
        ({"image": ImageEncoderConfig([4, 8]), "shift_px": 2, "encoder": "learned"}, True, ""),
        ({}, False, ""),
    ],
)
def test_settings_of_pictures_without_effect_are_refused(
    change: dict[str, Any], from_scratch: bool, says: str
) -> None:
    config = replace(MethodConfig(), **change)
    if not says:
        check_picture_settings(config, from_scratch=from_scratch)
        return
    with pytest.raises(ConfigError, match=says):
        check_picture_settings(config, from_scratch=from_scratch)


def test_the_memory_of_pictures_has_no_effect_on_the_cpu() -> None:
    """It is said and not refused, because a run of a GPU may continue on a CPU."""
    for frames, says in (("host", "method.frames=host has no effect on the CPU"), ("device", "")):
        pictures = learned_pictures(replace(METHODS["residual"], frames=frames), base(), "cpu")
        assert pictures is not None
        assert pictures.sentence.startswith(says)
        assert bool(pictures.sentence) == bool(says)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["method=sac"], "method.encoder=learned"),
        (["method=sac", "method.shift_px=2"], "method.shift_px=2 has no effect"),
        (["method=sac", "method.encoder=learned", "launcher=ray"], "without pictures"),
        (
            ["method=sac", "method.encoder=learned", "method.image.widths=[4,4,4,4]"],
            "method.image.widths=[4, 4, 4, 4] leaves one pixel of the 22 x 22 that a crop of image.view has",
        ),
        (
            ["method=sac", "method.encoder=learned", "method.image.crop=0.04"],
            "method.image.crop=0.04 leaves 1 x 1 pixels of image.view",
        ),
        (
            ["method=sac", "method.encoder=learned", "method.image.widths=[4]", "method.shift_px=24"],
            "method.shift_px=24 can move all of image.view out of the picture, which has 24 x 24 pixels",
        ),
        (["method=td3", "method.encoder=learned", "image_size=400", "env_steps=900000000"], "at most"),
    ],
)
def test_the_verb_refuses_before_it_creates_anything(
    words: list[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    big = ["method.replay_capacity=900000000"] if "method=td3" in words else []
    env = ENV.replace("image_size=24,", "") if "image_size=400" in words else ENV
    assert main(["finetune", f"env={env}", *words, *big, f"out={out}"]) != 0
    assert found in capsys.readouterr().err
    assert not out.exists()


# -- demonstrations


def demonstrations(folder: Path) -> EpisodeStore:
    """Two episodes of four steps towards a target at 3 m."""
    writer = DatasetWriter.create(folder / "data", SPEC)
    for seed in range(2):
        seen = observed(torch.tensor([[3.0, 1.0 + 0.5 * step] for step in range(5)]))
        with writer.episode(task="reach", seed=seed) as episode:
            for step in range(4):
                obs = {key: value[step].numpy() for key, value in seen.items()}
                episode.add(obs, np.array([2.0], np.float32), reward=0.0, terminated=step == 3)
            episode.commit(success=True, final_obs={key: value[4].numpy() for key, value in seen.items()})
    return EpisodeStore(folder / "data")


@pytest.mark.parametrize("kind", ["residual", "direct"])
def test_demonstrations_are_replayed_with_their_pictures(kind: str, tmp_path: Path) -> None:
    """Every demonstrated decision finds the picture that was recorded, and the one after it."""
    config = method(kind, demos=True)
    made, env = session(config, demos=demonstrations(tmp_path))
    assert isinstance(made.tuner, FineTuner)
    store = made.tuner.mix["demo"]
    assert store.frames is not None
    assert len(store) == 8
    zero = torch.zeros(8, dtype=torch.long)
    expected = observed(torch.tensor([[3.0, 1.0 + 0.5 * step] for step in range(5)]))["image.view"]
    now = store.frames.windows(zero, store.data["frame"][0, :8])["image.view"][:, -1]
    after = store.frames.windows(zero, store.data["next_frame"][0, :8])["image.view"][:, -1]
    assert torch.equal(now, expected[:4].repeat(2, 1, 1, 1))
    assert torch.equal(after, expected[1:].repeat(2, 1, 1, 1))
    begin(made, env)
    while not made.tuner.done:
        made.tuner.advance()


# -- what becomes of the policy


def trained(name: str) -> Any:
    made, env = session(METHODS[name])
    begin(made, env)
    while not made.tuner.done:
        made.tuner.advance()
    return made.policy.eval().requires_grad_(False)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "steering", "sac"])
def test_the_policy_is_exported_with_its_encoder(name: str, tmp_path: Path) -> None:
    """Graph and torch agree within 1e-5; a residual's correction is a graph of its own."""
    graphs = export_policy(trained(name), tmp_path)
    assert len(graphs) == (2 if name == "residual" else 1)
    assert all(graph.parity <= 1e-5 for graph in graphs)


@pytest.mark.parametrize("name", ["residual of chunks", "steering"])
def test_a_head_sees_what_its_teacher_sees(name: str, tmp_path: Path) -> None:
    """Features of the distilled head equal those of the teacher: of the base and of the learned encoder."""
    from policies.checkpoint import load_policy, save_policy

    teacher = trained(name)
    config = DistillVerb(teacher="t", out="o", net=MlpDenoiserConfig(width=8, depth=1))
    head = new_head(teacher, config, teacher)
    state = 1.0 + 3.0 * torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    obs = {key: value.unsqueeze(1).repeat_interleave(2, 1) for key, value in observed(state).items()}
    with torch.no_grad():
        assert torch.equal(head.features(obs), teacher.features(obs))
        save_policy(tmp_path, head)
        noise = torch.randn(5, 4, 1)
        assert torch.equal(load_policy(tmp_path).sample(obs, noise), head.sample(obs, noise))


@pytest.mark.slow
def test_the_verbs_learn_an_encoder(tmp_path: Path) -> None:
    """From a camera: collect, train, fine-tune by each method, evaluate, fine-tune the result again."""
    data, first = tmp_path / "data", tmp_path / "base"
    assert main(["collect", f"env={ENV}", "episodes=2", "num_envs=2", f"out={data}"]) == 0
    small = ["image.widths=[4,8]", "net.width=16", "net.depth=1", "batch_size=8", "steps=2", "threads=1"]
    assert main(["train", f"data={data}", f"out={first}", *small]) == 0
    short = ["max_episode_steps=12", "env_steps=60", "eval_episodes=1", "final_episodes=1", "num_envs=2"]
    learned = ["method.encoder=learned", "method.base_steps=30", "method.learner.batch=8"]
    for name in ("steering", "residual", "sac"):
        out = tmp_path / name
        words = [f"env={ENV}", "method.image.widths=[4,8]"] if name == "sac" else [f"base={first}"]
        words += [f"demos={data}", "method.burn_in=3"] if name == "residual" else []
        assert main(["finetune", *words, f"method={name}", f"out={out}", *learned, *short]) == 0
        assert json.loads((out / "results.json").read_text())["env_steps"] == 60
        assert main(["evaluate", f"policy={out}", "episodes=1", "max_episode_steps=12"]) == 0
    second = ["method=residual", "method.mix.demo=0", "method.mix.online=1", "method.burn_in=3"]
    second += [f"out={tmp_path / 'second'}"]
    assert main(["finetune", f"base={tmp_path / 'steering'}", *second, *learned, *short]) == 0


def test_a_session_of_states_has_no_frames() -> None:
    """Features of states need no pictures: the default."""
    config = replace(METHODS["residual"], encoder="frozen")
    env = session(config)[1]
    made = build_session(config, base_of(config), env, seed=0, demos=None)
    assert isinstance(made.tuner, FineTuner)
    assert made.tuner.mix["online"].frames is None
    assert made.tuner.learner.encoder is None
