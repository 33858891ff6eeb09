"""push and pull with a local server: what was pushed is pulled, nothing else, and no incomplete folder
appears.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import robo_rl as rr
from robo_rl.apps import pull, push
from robo_rl.apps.hub import contents
from robo_rl.apps.hub.card import card
from robo_rl.apps.hub.remote import HubRepo
from robo_rl.apps.list_runs import outcome
from robo_rl.conf.history import PullConfig, PushConfig
from robo_rl.conf.mission import MissionConfig
from robo_rl.conf.train import PretrainConfig, TrainConfig
from robo_rl.core.errors import ConfigError, DataError, LockedError, RoboRLError
from robo_rl.core.files.lock import FolderLock
from robo_rl.runs.history import PastRun
from robo_rl.runs.run_dir import RunDir
from tests.apps.hub.fake_hub import READER, TOKEN, FakeHub, fake_hub

ROOT = Path(__file__).resolve().parents[3]
# huggingface_hub gives its transport what that will refuse one day; that is no fault of the code under test.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A server, and a process that knows its address and a token that may write."""
    from huggingface_hub import constants

    monkeypatch.setattr(
        constants, "HF_HUB_DISABLE_XET", True
    )  # the server speaks LFS, as servers on premises do
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    with fake_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.long
def test_push_and_pull_of_a_bundle(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """Private, in one commit, weights by LFS; every byte is restored, and the card states the success."""
    assert push.main(PushConfig(str(made / "bundle"), "me/point")) == 0
    repo = hub.repos["models/me/point"]
    assert repo.private
    assert len(repo.commits) == 2
    assert hub.objects
    card = repo.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: robo-rl\n")
    measured = rr.load_bundle(made / "bundle").manifest["measured"]
    assert f"| {measured['k']} | {measured['n']} | [" in card
    assert "robo-rl pull repo=me/point" in card
    assert str(made) not in card
    assert pull.main(PullConfig("me/point", str(tmp_path / "got"))) == 0
    assert tree(tmp_path / "got") == tree(made / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["got"]


def test_push_and_pull_of_a_run_without_checkpoints(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """Its policy acts as before; resume=true reports missing checkpoints instead of starting anew."""
    push.main(PushConfig(str(made / "run"), "me/run"))
    names = hub.repos["models/me/run"].files.keys()
    assert not [name for name in names if name.startswith(("checkpoints", "tb/", ".lock"))]
    pull.main(PullConfig("me/run", str(tmp_path / "got")))
    assert tree(tmp_path / "got" / "policy") == tree(made / "run" / "policy")
    again = rr.evaluate(tmp_path / "got", episodes=4, num_workers=0)
    assert again.policy.rate.n == 4
    assert RunDir.open(tmp_path / "got").latest() is None
    with pytest.raises(ConfigError, match="holds no checkpoint, though the run had saved some"):
        rr.train(data=made / "data", out=tmp_path / "got", steps=4, chunk=4, execute=2, resume=True)


def test_push_and_pull_of_a_dataset(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """As a dataset of the Hub; it can be read and added to."""
    push.main(PushConfig(str(made / "data"), "me/points"))
    card = hub.repos["datasets/me/points"].files["README.md"].decode()
    assert "3 episodes" in card
    assert "3 successes of 3 labelled" in card
    pull.main(PullConfig("me/points", str(tmp_path / "got"), kind="dataset"))
    assert tree(tmp_path / "got" / "episodes") == tree(made / "data" / "episodes")
    assert len(rr.Dataset(tmp_path / "got")) == 3
    with pytest.raises(ConfigError, match=r"no such repository .*Check repo=, kind="):
        pull.main(PullConfig("me/points", str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"env": "gym/point_env:Other-v0"}, "gym/point_env:Other-v0"),
        ({"max_episode_steps": 10}, "gym/point_env:Point-v0, at most 10 steps per episode"),
    ],
)
def test_a_head_measured_elsewhere_is_not_published_as_measured_on_its_task(
    made: Path, tmp_path: Path, given: dict[str, Any], where: str
) -> None:
    """The card and `robo-rl runs` name the environment and the step limit of results.json."""
    gym = pytest.importorskip("gymnasium")
    from point_env import STEPS, Point

    if "Other-v0" not in gym.registry:
        gym.register("Other-v0", Point, max_episode_steps=STEPS)
    small = {"steps": 2, "rollout_steps": 100, "rounds": 0, "batch_size": 4, "eval_episodes": 2}
    rr.distill(made / "run", out=tmp_path / "head", num_envs=2, **small, **given)
    page = card(contents.contents_of(tmp_path / "head"), tmp_path / "head", "me/head")
    assert "- environment: `gym/point_env:Point-v0`, 10 Hz" in page
    assert f"Not measured on `gym/point_env:Point-v0` itself, but on {where}:" in page
    assert page.count(f"] | {where} |\n") == 2  # head and teacher
    assert outcome(PastRun.read(tmp_path / "head")).endswith(f"] on {where}")


def test_existing_files_need_overwrite(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """A second push and a pull into a folder with files are refused; overwrite=true keeps the history."""
    push.main(PushConfig(str(made / "run"), "me/point"))
    with pytest.raises(
        ConfigError, match=r"already holds an earlier push\. Add overwrite=true to replace it"
    ):
        push.main(PushConfig(str(made / "bundle"), "me/point"))
    push.main(PushConfig(str(made / "bundle"), "me/point", overwrite=True))
    repo = hub.repos["models/me/point"]
    assert "run.json" not in repo.files
    assert "run.json" in repo.commits[-2][1]
    pull.main(PullConfig("me/point", str(tmp_path / "old"), revision=repo.commits[-2][0]))
    assert (tmp_path / "old" / "run.json").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="exists already, and nothing is replaced"):
        pull.main(PullConfig("me/point", str(tmp_path / "mine")))
    assert tree(tmp_path / "mine") == {"thesis.txt": b"x"}


def test_foreign_repository_is_not_changed(hub: FakeHub, made: Path) -> None:
    """Files of another program and public repositories refuse a private push."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    repo = hub.repos["models/me/point"]
    repo.add({"model.bin": b"x"})
    with pytest.raises(ConfigError, match="files that robo-rl did not push"):
        push.main(PushConfig(str(made / "bundle"), "me/point", overwrite=True))
    push.main(PushConfig(str(made / "bundle"), "me/open", private=False))
    assert not hub.repos["models/me/open"].private
    with pytest.raises(ConfigError, match="is public: everybody could read"):
        push.main(PushConfig(str(made / "bundle"), "me/open", overwrite=True))
    assert len(hub.repos["models/me/open"].commits) == 2


def test_an_existing_private_repository_stays_private(
    hub: FakeHub, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """private=false would otherwise look as if everybody could read it now."""
    told = "me/point is still private: private=false is for new repositories."
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    assert told not in capsys.readouterr().out
    push.main(PushConfig(str(made / "bundle"), "me/point", private=False, overwrite=True))
    assert hub.repos["models/me/point"].private
    assert told in capsys.readouterr().out
    push.main(PushConfig(str(made / "bundle"), "me/open", private=False))
    assert "private" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["weights.pkl", "policy.pt", "../evil.json", "run.py", ".bashrc", "/etc/x.json"]
)
def test_unsafe_listing_is_refused(hub: FakeHub, made: Path, tmp_path: Path, name: str) -> None:
    """A listing that asks for one is refused as a whole, before any file is downloaded."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    repo = hub.repos["models/me/point"]
    listing = json.loads(repo.files["robo-rl.json"])
    listing["files"][name] = {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}
    repo.add(repo.files | {"robo-rl.json": json.dumps(listing).encode(), name: b"x"})
    hub.calls.clear()
    with pytest.raises(DataError, match="which is refused"):
        pull.main(PullConfig("me/point", str(tmp_path / "sub" / "got")))
    assert not (tmp_path / "sub").exists()
    assert not [call for call in hub.calls if "/resolve/" in call and "robo-rl.json" not in call]


def test_unlisted_files_are_not_downloaded(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """A pickle next to the listing is neither downloaded nor an error; it is not pushed either."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    repo = hub.repos["models/me/point"]
    repo.add(repo.files | {"weights.pkl": b"x"})
    pull.main(PullConfig("me/point", str(tmp_path / "got")))
    assert tree(tmp_path / "got") == tree(made / "bundle")
    shutil.copytree(made / "run", tmp_path / "run")
    (tmp_path / "run" / "notes.pkl").write_bytes(b"x")
    (tmp_path / "run" / "link.json").symlink_to("/etc/hostname")
    push.main(PushConfig(str(tmp_path / "run"), "me/run"))
    assert not {"notes.pkl", "link.json"} & hub.repos["models/me/run"].files.keys()


def test_pull_into_the_current_folder(
    hub: FakeHub, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """out=. of an empty folder, which as a mount point cannot be replaced; a killed pull is cleared up."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    (tmp_path / "here/.pull/files/half").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    before = (tmp_path / "here").stat().st_ino
    assert pull.main(PullConfig("me/point", ".")) == 0
    assert tree(tmp_path / "here") == tree(made / "bundle")
    assert (tmp_path / "here").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    with pytest.raises(ConfigError, match="exists already, and nothing is replaced"):
        pull.main(PullConfig("me/point", "."))


@pytest.mark.parametrize("found", ["Infinity", "1e999", str(10**400), "-1", '"1"', "null"])
def test_listing_with_an_impossible_size_is_refused(made: Path, found: str) -> None:
    good = contents.contents_of(made / "bundle").to_json()
    text = json.dumps(good).replace(str(next(iter(good["files"].values()))["bytes"]), found, 1)
    with pytest.raises(DataError, match="cannot be parsed"):
        contents.HubContents.from_json(json.loads(text), "me/point")
    paths = {**good, "files": [[1, entry] for entry in good["files"].values()]}
    with pytest.raises(DataError, match="cannot be parsed"):
        contents.HubContents.from_json(paths, "me/point")


@pytest.mark.parametrize("name", ["me/my run", "me/--bad", "me/x.git", "me/" + 100 * "x"])
def test_a_name_that_the_hub_does_not_allow_is_no_fault_of_the_network(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is no valid name of a repository: .* Choose another name"):
        HubRepo(name, "model").listing("main")


@pytest.mark.parametrize("damage", ["changed", "missing", "listing", "deep listing", "no listing"])
def test_damaged_repository_leaves_no_folder(hub: FakeHub, made: Path, tmp_path: Path, damage: str) -> None:
    """Every file is compared with its checksum before the folder appears."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    repo = hub.repos["models/me/point"]
    files = dict(repo.files)
    if damage == "changed":
        files["weights.safetensors"] = files["weights.safetensors"][:-1] + b"\0"
    elif damage == "missing":
        del files["weights.safetensors"]
    elif damage == "listing":
        files["robo-rl.json"] = b'{"format": 1, "files": ['
    elif damage == "deep listing":
        files["robo-rl.json"] = b"[" * 200_000
    else:
        del files["robo-rl.json"]
    repo.add(files)
    says = {
        "changed": "differs from its checksum",
        "missing": "which it does not hold",
        "listing": "cannot be parsed",
        "deep listing": "cannot be parsed",
        "no listing": "`robo-rl push` did not write it",
    }
    with pytest.raises(DataError, match=says[damage]):
        pull.main(PullConfig("me/point", str(tmp_path / "got")))
    assert not list(tmp_path.iterdir())


def test_killed_pull_leaves_no_folder(hub: FakeHub, made: Path, tmp_path: Path) -> None:
    """SIGKILL during the download: no folder, and the next pull deletes leftovers."""
    push.main(PushConfig(str(made / "bundle"), "me/point"))
    hub.stall = "weights.safetensors"
    words = ["pull", "repo=me/point", f"out={tmp_path / 'got'}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robo_rl", *words],
        cwd=ROOT,
        env=os.environ | {"HF_HUB_DISABLE_XET": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert hub.stalled.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "got").exists()
    hub.stall = None
    pull.main(PullConfig("me/point", str(tmp_path / "got")))
    assert tree(tmp_path / "got") == tree(made / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["got"]


def test_refusals_are_reported(
    hub: FakeHub, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong token, a read-only one, no server, a name without an owner, a folder of no known kind."""
    path = str(made / "bundle")
    push.main(PushConfig(path, "me/point"))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    for call in (
        lambda: push.main(PushConfig(path, "me/other")),
        lambda: pull.main(PullConfig("me/point", str(tmp_path / "got"))),
    ):
        with pytest.raises(ConfigError, match=r"does not know your token \(401\).*hf auth login"):
            call()
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(ConfigError, match=r"may not do that \(403\)"):
        push.main(PushConfig(path, "me/other"))
    with pytest.raises(ConfigError, match="<user or organisation>/<name>"):
        push.main(PushConfig(path, "point"))
    with pytest.raises(DataError, match="is a folder of unknown content, not a run"):
        push.main(PushConfig(str(made), "me/other"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RoboRLError, match=r"127.0.0.1:9.*Check the network"):
        pull.main(PullConfig("me/point", str(tmp_path / "got")))
    assert not list(tmp_path.iterdir())


def test_a_run_that_never_holds_a_policy_is_not_called_unfinished(tmp_path: Path) -> None:
    """No command continues it to one; that of a training says so."""
    for config, words in (
        (
            MissionConfig(),
            "is a run of `robo-rl mission`, which holds no policy. Push the run whose policy flew",
        ),
        (PretrainConfig(), "is a run of `robo-rl pretrain`, which holds no policy. Push the run of a policy"),
        (TrainConfig(), "is a run without a policy, because it was stopped before its end, has failed or"),
    ):
        with (
            RunDir.create(tmp_path / type(config).__name__, config) as run,
            pytest.raises(DataError) as caught,
        ):
            contents.kind_of(run.path)
        assert words in str(caught.value)


def test_locked_dataset_is_not_pushed(hub: FakeHub, made: Path) -> None:
    """The dataset is locked by another process; the test simulates it by another name of the same process."""
    code = (
        "import sys; from robo_rl.core.files.lock import FolderLock\n"
        "lock = FolderLock(sys.argv[1], 'dataset'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(made / "data")],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match="is in use by"):
        push.main(PushConfig(str(made / "data"), "me/points"))
    holder.communicate()
    assert "datasets/me/points" not in hub.repos
    FolderLock(made / "data", "dataset").close()


@pytest.mark.parametrize("kind", ["data", "bundle"])
def test_too_many_files_are_refused_by_push_and_pull(
    hub: FakeHub, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Push refuses what pull would, before anything is uploaded; pull says that the number is the reason."""
    monkeypatch.setattr(contents, "MOST_FILES", 2)
    with pytest.raises(DataError, match=r"has \d+ files, more than the 2 that a repository may") as caught:
        push.main(PushConfig(str(made / kind), "me/many"))
    assert ("robo-rl data export" in str(caught.value)) == (kind == "data")
    assert not hub.repos
    monkeypatch.undo()
    many = contents.contents_of(made / kind)
    monkeypatch.setattr(contents, "MOST_FILES", 2)
    with pytest.raises(DataError, match=r"me/many lists \d+ files, more than the 2 that are downloaded"):
        contents.HubContents.from_json(many.to_json(), "me/many")
