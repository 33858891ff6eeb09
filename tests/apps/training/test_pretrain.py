"""`robo-rl pretrain`, and policies that start from its encoder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from policies.checkpoint import load_policy
from policies.pretraining.saved_encoder import load_encoder
from policies.vla.config import VlaConfig
from robo_rl.apps import pretrain, train
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main
from robo_rl.apps.training.video import trainable, video_data, video_frames
from robo_rl.conf.train import PretrainConfig, StartedImageConfig, TrainConfig
from robo_rl.core.errors import CheckpointError, ConfigError, DataError, RoboRLError
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.runs.history import PastRun
from robo_rl.runs.loaded_policy import find_policy
from robo_rl.runs.resumable import RunSession
from tests.apps.conftest import train_config
from tests.apps.tuning.dying import Killed, dying
from tests.data.recordings import STATE_ENV, record
from tests.policies.dot_video import CAMERA, ENV, record_dots
from tests.policies.told_videos import TOLD_ENV, record_light

SMALL = {"widths": [4, 8], "features": 6, "keypoints": 3}
WRIST = replace(ENV, obs={**ENV.obs, "image.wrist": ArraySpec((12, 12, 3), "uint8")})


def pretrain_config(source: Path, out: Path, **changes: object) -> PretrainConfig:
    small = {"steps": 6, "batch_size": 4, "width": 8, "log_every": 1, "checkpoint_every": 2, "device": "cpu"}
    settings = {"data": str(source), "out": str(out), "image": ImageEncoderConfig(**SMALL), **small}  # type: ignore[arg-type]
    return PretrainConfig(**settings | changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_dots(tmp_path_factory.mktemp("data") / "dots", 3)


@pytest.fixture(scope="module")
def video(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "video"
    assert pretrain.main(pretrain_config(data, run)) == 0
    return run


def lines(run: Path) -> list[str]:
    """Lines of the log without their times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [json.dumps({k: v for k, v in row.items() if "time" not in k and "wall" not in k}) for row in rows]


def test_a_run_learns_from_every_episode_and_names_the_next_command(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failed episodes are used, too."""
    run = tmp_path / "video"
    assert pretrain.main(pretrain_config(data, run, steps=1)) == 0
    same = "image.features=6 image.keypoints=3 image.widths=[4,8]"
    said = capsys.readouterr().out
    assert f"image.init={run} {same}\n" in said
    assert "train data=<demonstrations with the same kind of pictures> out=" in said, "it has no actions"
    assert PastRun.read(run).done
    with pytest.raises(CheckpointError, match="makes a picture encoder and no policy"):
        find_policy(run)
    note = load_encoder(run / "encoder").train
    assert note["data"] == {"path": str(data), "episodes": 3, "frames": 36}
    assert len(lines(run)) == 1


def test_data_that_train_learns_from_is_known(data: Path, tmp_path: Path) -> None:
    """`Next:` named every dataset: also videos, whose actions are all 0, and those that `train` refuses."""
    assert not trainable(str(data))
    taught = record(tmp_path / "taught", [12, 8])
    assert trainable(str(taught))
    assert not trainable(f"[{taught},{data}]"), "other actions"
    failed = record(tmp_path / "failed", [12, 8])
    for number in (0, 1):
        assert main(["data", "edit", f"path={failed}", f"relabel=[{number}]", "success=false"]) == 0
    assert not trainable(str(failed)), "no episode that did not fail"


def test_killed_and_resumed_gives_the_same_encoder_and_curve(
    data: Path, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 7: killed at its second save, which leaves the checkpoint of update 2."""
    run = tmp_path / "killed"
    with monkeypatch.context() as patched:
        patched.setattr(RunSession, "save", dying(RunSession.save, 2))
        with pytest.raises(Killed):
            pretrain.main(pretrain_config(data, run))
    assert not (run / "encoder").exists()
    assert pretrain.main(pretrain_config(data, run, resume=True)) == 0
    assert lines(run) == lines(video)
    weights = [path / "encoder" / "state.safetensors" for path in (run, video)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with pytest.raises(ConfigError, match="already holds a run"):
        pretrain.main(pretrain_config(data, run))
    with pytest.raises(ConfigError, match=r"was started with gamma=0\.99"):
        pretrain.main(pretrain_config(data, run, resume=True, gamma=0.5))


LIGHT = ImageEncoderConfig(widths=[4], features=6, pool="mean")


def test_instructions_as_goals_survive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder is saved without the vectors of words, and differs from that of frames alone."""
    seen = record_light(tmp_path / "light", 2)
    runs = {name: tmp_path / name for name in ("whole", "killed", "plain")}
    for name, share in (("whole", 0.5), ("plain", 0.0)):
        pretrain.main(pretrain_config(seen, runs[name], image=LIGHT, instruction_goals=share))
    with monkeypatch.context() as patched:
        patched.setattr(RunSession, "save", dying(RunSession.save, 2))
        with pytest.raises(Killed):
            pretrain.main(pretrain_config(seen, runs["killed"], image=LIGHT, instruction_goals=0.5))
    with pytest.raises(ConfigError, match=r"was started with instruction_goals=0\.5"):
        pretrain.main(pretrain_config(seen, runs["killed"], image=LIGHT, resume=True))
    pretrain.main(pretrain_config(seen, runs["killed"], image=LIGHT, instruction_goals=0.5, resume=True))
    assert lines(runs["killed"]) == lines(runs["whole"])
    whole, killed, plain = (run / "encoder" / "state.safetensors" for run in runs.values())
    assert whole.read_bytes() == killed.read_bytes()
    weights, others = load_encoder(whole.parent).weights, load_encoder(plain.parent).weights
    assert weights.keys() == others.keys()
    assert not weights["stem.weight"].equal(others["stem.weight"])


def test_instructions_are_reached_in_complete_episodes_that_are_not_failed(tmp_path: Path) -> None:
    """Labelled, unlabelled, failed and interrupted ones, seen by two cameras in a row."""
    two = replace(TOLD_ENV, obs={**TOLD_ENV.obs, "image.second": TOLD_ENV.obs[CAMERA]})
    labels: dict[str, dict[str, bool | None]] = {
        "good": {"success": True},
        "open": {"success": None},
        "bad": {"success": False},
        "cut": {"success": None, "complete": False},
    }
    paths = [record_light(tmp_path / name, 1, env=two, **each) for name, each in labels.items()]  # type: ignore[arg-type]
    data = video_data(pretrain_config(paths[0], tmp_path, data=f"[{','.join(map(str, paths))}]"))
    told = video_frames(data, None, instructions=True).instructions
    assert told is not None
    assert told.reached.tolist() == [True] * 4 + [False] * 4
    assert told.words.tolist() == [[3, 2, 1]] * 8  # make it brighter


def test_data_without_instructions_are_refused_as_goals(tmp_path: Path) -> None:
    seen = record_light(tmp_path / "light", 2)
    mute = record_light(tmp_path / "mute", 2, env=replace(TOLD_ENV, obs={CAMERA: TOLD_ENV.obs[CAMERA]}))
    empty = record_light(tmp_path / "empty", 2, text="?")
    failed = record_light(tmp_path / "failed", 2, success=False)
    for source, words in (
        (f"[{seen},{mute}]", "needs episodes with instructions, and episode 0 in .*mute has none"),
        (str(empty), "episode 0 in .*empty has none"),
        (str(failed), "all in .*failed are marked as failed or incomplete"),
    ):
        config = pretrain_config(seen, tmp_path / "run", data=source, image=LIGHT, instruction_goals=0.1)
        with pytest.raises(DataError, match=words):
            pretrain.main(config)
        assert not (tmp_path / "run").exists()


def image(init: Path | None, **changes: object) -> StartedImageConfig:
    return StartedImageConfig(**SMALL | changes, init=None if init is None else str(init))  # type: ignore[arg-type]


def test_every_camera_starts_from_the_encoder(video: Path, tmp_path: Path) -> None:
    """With a learning rate of almost 0 the trained policy has its weights; all other weights are those of a
    policy without it.
    """
    still = {"steps": 1, "batch_size": 2, "lr": 1e-30, "weight_decay": 0.0, "learn_from": "all"}
    two = replace(ENV, obs={**ENV.obs, "image.second": ENV.obs[CAMERA]})
    seen = record_dots(tmp_path / "two", 2, env=two)
    for name, init in (("started", video), ("random", None)):
        config = train_config(seen, tmp_path / name, image=image(init), **still)
        assert train.main(config) == 0
    started, random = (load_policy(tmp_path / name / "policy") for name in ("started", "random"))
    weights = load_encoder(video / "encoder").weights
    for key, value in started.state_dict().items():
        if key.startswith("encoder.cameras."):
            assert value.equal(weights[key.split(".", 3)[3]]), key
        else:
            assert value.equal(random.state_dict()[key]), key
    note = json.loads((tmp_path / "started/policy/policy.json").read_text())
    assert note["train"]["image_init"] == str(video)
    assert (
        note["config"]["image"]
        == json.loads((tmp_path / "random/policy/policy.json").read_text())["config"]["image"]
    )
    assert "init" not in note["config"]["image"]
    assert any(not value.equal(random.state_dict()[key]) for key, value in started.state_dict().items())


def test_a_training_resumes_without_its_encoder(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint holds the weights. Before the first one the encoder is needed."""
    seen, encoder = record_dots(tmp_path / "seen", 2), tmp_path / "encoder"
    shutil.copytree(video, encoder)
    few = {"steps": 4, "batch_size": 2, "learn_from": "all", "checkpoint_every": 1, "image": image(encoder)}
    whole, late, early = (train_config(seen, tmp_path / name, **few) for name in ("whole", "late", "early"))
    assert train.main(whole) == 0
    for config, save in ((late, 3), (early, 1)):
        with monkeypatch.context() as patched:
            patched.setattr(RunSession, "save", dying(RunSession.save, save))
            with pytest.raises(Killed):
                train.main(config)
    shutil.rmtree(encoder)
    assert train.main(replace(late, resume=True)) == 0
    resumed, other = (load_policy(Path(config.out) / "policy").state_dict() for config in (late, whole))
    assert all(value.equal(other[key]) for key, value in resumed.items())
    with pytest.raises(CheckpointError, match=r"image\.init"):
        train.main(replace(early, resume=True))


def test_an_encoder_that_does_not_fit_is_refused_first(data: Path, video: Path, tmp_path: Path) -> None:
    """One sentence each, and no run."""

    def refused(error: type[RoboRLError], words: str, seen: Path = data, **changes: object) -> None:
        with pytest.raises(error, match=words):
            train.main(train_config(seen, tmp_path / "run", **{"learn_from": "all"} | changes))
        assert not (tmp_path / "run").exists()

    refused(
        ConfigError,
        r"image\.features=6, image\.widths=\[4,8\], but this training image\.features=5, image\.widths=\[4\]",
        image=image(video, widths=[4], features=5),
    )
    small = record_dots(
        tmp_path / "small", 1, env=replace(ENV, obs={CAMERA: ArraySpec((16, 12, 3), "uint8")})
    )
    refused(
        ConfigError, "of 16 x 16 pixels, but those of 'image.top' have 12 x 16", small, image=image(video)
    )
    states = record(tmp_path / "states", [4], env=STATE_ENV)
    refused(ConfigError, "hold none", states, image=image(video))
    refused(CheckpointError, "nowhere does not exist", image=image(tmp_path / "nowhere"))
    refused(CheckpointError, "is a dataset, not a run of robo-rl pretrain", image=image(data))
    vla = {"policy": VlaConfig(), "net": TrainConfig().net}
    refused(ConfigError, "image= is a setting of policy=generative", image=image(video), **vla)


def test_a_policy_that_would_not_see_its_pictures_is_refused(data: Path, tmp_path: Path) -> None:
    """Three widths leave one pixel of 16 x 16, which image.pool=mean can read and softmax cannot."""
    out = tmp_path / "base"
    with pytest.raises(ConfigError, match=r"image\.widths=\[32, 64, 128\] leaves one pixel .* of image\.top"):
        train.main(train_config(data, out, learn_from="all"))
    assert not out.exists()
    few = StartedImageConfig(widths=[4, 8, 8], pool="mean")
    assert train.main(train_config(data, out, learn_from="all", steps=1, image=few)) == 0


def test_an_unfinished_run_has_no_encoder(data: Path, video: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is a run without a pre-trained encoder"):
        train.main(train_config(data, tmp_path / "base", image=image(tmp_path / "run"), learn_from="all"))
    bad = tmp_path / "bad"
    bad.mkdir()
    for file in (video / "encoder").iterdir():
        (bad / file.name).write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is damaged: its checksum differs"):
        train.main(train_config(data, tmp_path / "base", image=image(bad), learn_from="all"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"camera": "side"}, r"camera=side cannot be used: the cameras in .* are image.top \| image.wrist"),
        ({}, r"several sizes \(image.top 16 x 16, image.wrist 12 x 12 pixels\).*camera=image.top"),
        ({"camera": "top", "image": ImageEncoderConfig(features=0)}, r"image\.features=0 cannot be used"),
        ({"camera": "top", "future_goals": 0.9}, r"future_goals=0\.9 and current_goals=0\.2 are shares"),
        (
            {"camera": "top", "image": ImageEncoderConfig()},
            "leaves one pixel of the 14 x 14",
        ),
        ({"camera": "top", "gamma": 1.0}, r"gamma=1\.0 cannot be used"),
        ({"camera": "top", "data": "nowhere"}, "nowhere does not exist"),
    ],
)
def test_bad_inputs_leave_no_run_folder(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    data = record_dots(tmp_path / "data", 2, frames=3, env=WRIST)
    with pytest.raises(RoboRLError, match=words):
        pretrain.main(pretrain_config(data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "frames", "words"),
    [(STATE_ENV, 3, "holds no pictures to learn from, only state"), (ENV, 1, "no video with two frames")],
)
def test_data_without_video_are_refused(env: EnvSpec, frames: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    (record(path, [frames], env=env) if env is STATE_ENV else record_dots(path, 1, frames, env))
    with pytest.raises(DataError, match=words):
        pretrain.main(pretrain_config(path, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_datasets_of_several_robots_are_learned_from_together(tmp_path: Path) -> None:
    """Their states and actions differ, which value learning from pictures does not see."""
    one = record_dots(tmp_path / "one", 1, frames=4)
    arm = replace(ENV, obs={CAMERA: ENV.obs[CAMERA]}, action=STATE_ENV.action)
    two = record_dots(tmp_path / "two", 1, frames=5, env=arm)
    run = tmp_path / "run"
    assert pretrain.main(pretrain_config(one, run, data=f"[{one},{two}]", steps=2)) == 0
    assert load_encoder(run / "encoder").train["data"]["frames"] == 9


def test_other_data_are_refused_on_resume(data: Path, video: Path, tmp_path: Path) -> None:
    config = pretrain_config(record_dots(tmp_path / "more", 4), video, resume=True)
    with pytest.raises(RoboRLError, match="was started with data="):
        pretrain.main(config)


def test_the_command_line_names_the_methods() -> None:
    words = ["data=d", "out=o"]
    assert (
        load_config("pretrain", [*words, "method=video_values"], PretrainConfig).method.name == "video_values"
    )
    with pytest.raises(RoboRLError, match="video_values"):
        load_config("pretrain", [*words, "method=h2r"], PretrainConfig)


def test_the_seed_decides(data: Path, video: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        pretrain.main(pretrain_config(data, tmp_path / name, seed=seed))
    stem = "stem.weight"
    first, same, other = (
        load_encoder(run / "encoder").weights[stem] for run in (video, tmp_path / "same", tmp_path / "other")
    )
    assert first.equal(same)
    assert not torch.equal(first, other)
