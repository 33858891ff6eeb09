"""Import of replay buffers: a small one made here, and the published human demonstrations of Push-T."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numcodecs
import numcodecs.pickles
import numpy as np
import pytest
import zarr
from numpy import ndarray

from robo_rl.core.errors import DataError, UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.importers import ReplayBufferSource, import_replay_buffer
from robo_rl.data.pusht import block_keypoints, pusht_keys, pusht_spec
from robo_rl.data.selection import select_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.data.validate import validate
from robo_rl.data.zarr_buffer import codec_names

SHARED = Path(os.environ.get("ROBO_RL_DATA", Path(__file__).parents[3] / "shared" / "data"))
HUMAN = SHARED / "pusht_human.zarr"
needs_human = pytest.mark.skipif(
    not HUMAN.is_dir(),
    reason=f"the human Push-T demonstrations are not at {HUMAN}; set ROBO_RL_DATA to their folder",
)

ENDS = [3, 4, 9]
SMALL = EnvSpec(
    "test/small",
    {"state": ArraySpec((2,)), "image.top": ArraySpec((4, 4, 3), "uint8")},
    ActionSpec((-1.0,), (1.0,)),
    10,
    5.0,
)
KEYS = {"state": "data/pos", "image.top": "data/img", "action": "data/act"}


def _buffer(path: Path, **replace: ndarray) -> dict[str, ndarray]:
    """A zarr v2 replay buffer with Blosc-zstd, as Diffusion Policy writes it: 3 episodes, 9 rows."""
    rng = np.random.default_rng(0)
    arrays = {
        "data/pos": rng.standard_normal((9, 2)).astype(np.float64),
        "data/img": rng.integers(0, 256, (9, 4, 4, 3)).astype(np.float32),
        "data/act": rng.uniform(-1, 1, (9, 1)).astype(np.float32),
        "data/gain": np.arange(9, dtype=np.float32),
        "meta/episode_ends": np.array(ENDS),
    } | {name.replace("__", "/"): array for name, array in replace.items()}
    group = zarr.create_group(path, zarr_format=2)
    for name, array in arrays.items():
        from numcodecs import Blosc

        codec = Blosc(cname="zstd", clevel=5, shuffle=Blosc.BITSHUFFLE)
        group.create_array(name, data=array, chunks=(4, *array.shape[1:]), compressors=codec)
    return arrays


def test_buffer_becomes_a_valid_dataset(tmp_path: Path) -> None:
    """Every value of every episode; labels, stamps and final observations are not invented."""
    arrays = _buffer(tmp_path / "buffer.zarr")
    steps: list[tuple[int, int]] = []
    keys = {**KEYS, "reward": "data/gain"}
    done = import_replay_buffer(
        tmp_path / "buffer.zarr", tmp_path / "set", SMALL, keys, progress=lambda i, n: steps.append((i, n))
    )
    assert (done, steps) == (3, [(1, 3), (2, 3), (3, 3)])
    store = EpisodeStore(tmp_path / "set")
    assert store.spec == SMALL
    assert [episode.frames for episode in store] == [3, 1, 5]
    assert select_episodes(store, "unfailed").positions == (
        0,
        1,
        2,
    )  # nobody said that a human's recording failed
    for episode, (start, end) in zip(store, [(0, 3), (3, 4), (4, 9)], strict=True):
        np.testing.assert_array_equal(episode.obs("state"), arrays["data/pos"][start:end].astype(np.float32))
        np.testing.assert_array_equal(
            episode.obs("image.top"), arrays["data/img"][start:end].astype(np.uint8)
        )
        np.testing.assert_array_equal(episode.action, arrays["data/act"][start:end])
        np.testing.assert_array_equal(episode.reward, np.arange(start, end))
        assert (episode.meta.success, episode.has_final_obs, episode.stamps()) == (None, False, {})
    assert [fault for fault in validate(tmp_path / "set") if fault.severity == "error"] == []


def test_a_key_may_be_computed(tmp_path: Path) -> None:
    """A Source joins, slices or scales arrays: here images of 0 to 1, and a state of position and gain."""
    arrays = _buffer(tmp_path / "buffer.zarr", data__img=np.full((9, 4, 4, 3), 0.5, dtype=np.float32))
    env = EnvSpec(
        "test/made", {"state": ArraySpec((3,)), "image.top": SMALL.obs["image.top"]}, SMALL.action, 10, 5.0
    )
    keys = {
        "state": ReplayBufferSource(
            ("data/pos", "data/gain"), lambda pos, gain: np.concatenate([pos, gain[:, None]], axis=1)
        ),
        "image.top": ReplayBufferSource(("data/img",), lambda img: img * 255),
        "action": "data/act",
    }
    import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", env, keys, image_codec="jpeg")
    episode = EpisodeStore(tmp_path / "set").episode(2)
    np.testing.assert_array_equal(episode.obs("state")[:, 2], arrays["data/gain"][4:9])
    assert np.abs(episode.obs("image.top").astype(int) - 128).max() <= 1


@pytest.mark.parametrize(
    ("replace", "keys", "message"),
    [
        (
            {},
            {"state": "data/pos", "action": "data/act"},
            r"has no entry for \['image.top'\].*image.top:data/",
        ),
        (
            {},
            {**KEYS, "state": "data/position"},
            r"has no array 'data/position'\. Did you mean 'data/pos'\? It has data/act, data/gain, data/img",
        ),
        ({}, {**KEYS, "velocity": "data/pos"}, r"names \['velocity'\], but"),
        ({}, {**KEYS, "state": "data/act"}, r"'state' is float32\[1\], the contract expects float32\[2\]"),
        ({"data__act": np.zeros((7, 1))}, KEYS, "is truncated: .*row 9, but data/act has 7"),
        ({"meta__episode_ends": np.array([3, 3, 9])}, KEYS, "must increase strictly"),
        ({"data__img": np.full((9, 4, 4, 3), 300.0)}, KEYS, "hold 300 to 300, 0 to 255"),
        ({"data__img": np.full((9, 4, 4, 3), 0.7)}, KEYS, "hold 0.7 to 0.7, 0 to 255"),
    ],
)
def test_mismatched_buffer_is_refused(
    tmp_path: Path, replace: dict[str, ndarray], keys: dict[str, Any], message: str
) -> None:
    """The message names the key or array; no incomplete dataset remains."""
    _buffer(tmp_path / "buffer.zarr", **replace)
    with pytest.raises(DataError, match=message):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, keys)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["buffer.zarr"]


def test_foreign_paths_and_existing_targets(tmp_path: Path) -> None:
    """No path, no replay buffer, a target that would be overwritten: refused, each with its path."""
    for source in (tmp_path / "nothing", tmp_path):
        with pytest.raises(DataError, match="is not a replay buffer"):
            import_replay_buffer(source, tmp_path / "set", SMALL, KEYS)
    _buffer(tmp_path / "buffer.zarr")
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match="exists already"):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS)


def test_killed_import_can_be_repeated(tmp_path: Path) -> None:
    """Leftovers next to the target are not read as a dataset and do not block the next attempt."""
    _buffer(tmp_path / "buffer.zarr")
    (tmp_path / ".set.importing").mkdir()
    (tmp_path / ".set.importing/half").write_text("done")
    assert import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS, limit=2) == 2
    assert not (tmp_path / ".set.importing").exists()


def test_key_points_of_a_known_pose() -> None:
    """At (100, 200) px turned by 90 degrees, (x, y) of the T becomes (100 - y, 200 + x)."""
    points = block_keypoints(np.array([[100.0, 200.0, np.pi / 2]])).reshape(8, 2)
    np.testing.assert_allclose(points[0], [100, 140], atol=1e-9)
    np.testing.assert_allclose(points[6], [-20, 215], atol=1e-9)


def test_key_points_equal_the_simulators() -> None:
    """The same vertices in the same order as gym-pusht's `environment_state`, for random poses."""
    pymunk, pusht = pytest.importorskip("pymunk"), pytest.importorskip("gym_pusht.envs.pusht")
    for pose in np.random.default_rng(0).uniform([50, 50, -4], [450, 450, 4], (20, 3)):
        body, shapes = pusht.PushTEnv.add_tee(pymunk.Space(), tuple(pose[:2]), 0)
        body.angle = pose[2]
        body.position = tuple(pose[:2])
        expected = pusht.PushTEnv.get_keypoints(shapes).reshape(-1)
        np.testing.assert_allclose(block_keypoints(pose[None])[0], expected, atol=1e-9)


@pytest.mark.parametrize("variant", ["state", "keypoints", "pixels"])
def test_contract_is_that_of_the_simulator(variant: str) -> None:
    """A policy trained on imported demonstrations must run in the simulator: same keys, shapes, units, limits
    and rate.
    """
    adapter = pytest.importorskip("sim.adapters.pusht")
    assert pusht_spec(f"pusht/{variant}") == adapter.PushTLanes(variant).spec


def test_unknown_observation_of_pusht() -> None:
    """The error lists the existing names."""
    with pytest.raises(UnknownNameError, match="pusht/keypoints"):
        pusht_spec("pusht/keypoint")


@needs_human
def test_the_206_human_demonstrations(tmp_path: Path) -> None:
    """All 25,650 steps, value by value against plain zarr, and no fault from `validate`."""
    name = "pusht/keypoints"
    assert import_replay_buffer(HUMAN, tmp_path / "set", pusht_spec(name), pusht_keys(name)) == 206
    store, group = EpisodeStore(tmp_path / "set"), zarr.open_group(HUMAN, mode="r")
    state, ends = group["data/state"][:], group["meta/episode_ends"][:]
    assert (store.totals.frames, [e.frames for e in store]) == (25650, np.diff(ends, prepend=0).tolist())
    read = np.concatenate([episode.obs("state") for episode in store])
    np.testing.assert_array_equal(np.concatenate([e.action for e in store]), group["data/action"][:])
    np.testing.assert_array_equal(read[:, :2], state[:, :2])
    np.testing.assert_allclose(read[:, 2:], block_keypoints(state[:, 2:].astype(np.float64)), atol=1e-3)
    assert validate(tmp_path / "set") == []


@needs_human
def test_the_published_key_points_are_fixed_to_the_pose(tmp_path: Path) -> None:
    """In the block's frame the nine published points are constant within 0.2 px, which confirms the
    convention of the pose. None is one of the eight vertices: the nearest is 1.3 px from its corner, most are
    inside the T.
    """
    group = zarr.open_group(HUMAN, mode="r")
    state, points = (
        group["data/state"][:2000].astype(np.float64),
        group["data/keypoint"][:2000].astype(np.float64),
    )
    relative, angle = points - state[:, None, 2:4], state[:, None, 4]
    local_x = np.cos(angle) * relative[..., 0] + np.sin(angle) * relative[..., 1]
    local_y = -np.sin(angle) * relative[..., 0] + np.cos(angle) * relative[..., 1]
    local = np.stack([local_x, local_y], axis=-1)
    assert local.std(axis=0).max() < 0.2
    vertices = block_keypoints(np.zeros((1, 3))).reshape(8, 2)
    assert np.linalg.norm(local.mean(axis=0)[:, None] - vertices, axis=-1).min() > 1.3


@needs_human
def test_human_images_become_uint8(tmp_path: Path) -> None:
    """Float 0-255 on disk, whole numbers: uint8 loses nothing."""
    name = "pusht/pixels"
    import_replay_buffer(HUMAN, tmp_path / "set", pusht_spec(name), pusht_keys(name), limit=1)
    episode = EpisodeStore(tmp_path / "set").episode(0)
    images = zarr.open_group(HUMAN, mode="r")["data/img"][: episode.frames]
    np.testing.assert_array_equal(episode.obs("image.front"), images)
    assert episode.array("image.front").dtype == np.uint8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__act": np.full((9, 1), 100.0, dtype=np.float32)}, "starts at row 0 .*far outside its limits"),
        ({"data__pos": np.full((9, 2), np.nan)}, "starts at row 0 .*'state' is not finite in row 0"),
    ],
)
def test_implausible_numbers_are_refused(tmp_path: Path, changes: dict[str, np.ndarray], words: str) -> None:
    """Actions in other units, or NaN, are refused at import, and no dataset remains."""
    _buffer(tmp_path / "buffer.zarr", **changes)
    with pytest.raises(DataError, match=words):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS)
    assert not (tmp_path / "set").exists()


CODE_RUNS: list[str] = []


class _RunsCode:
    """Payload of a hostile pickle: loading it calls `CODE_RUNS.append`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return CODE_RUNS.append, ("ran",)


def _replace_array(buffer: Path, name: str, dtype: str, filters: list[dict[str, Any]], chunk: bytes) -> None:
    """Rewrite an array of a zarr v2 buffer as a hostile file has it."""
    folder = buffer / name
    metadata = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": dtype, "order": "C"}
    (folder / ".zarray").write_text(
        json.dumps(metadata | {"compressor": None, "fill_value": None, "filters": filters})
    )
    (folder / "0").write_bytes(chunk)


@pytest.mark.parametrize("name", ["meta/episode_ends", "data/pos"])
@pytest.mark.parametrize(
    ("dtype", "filters"),
    [
        ("|O", [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]),
        ("|O", [{"id": "pickle", "protocol": 5}]),
    ],
)
def test_a_buffer_cannot_run_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str, filters: list[dict[str, Any]]
) -> None:
    """An array that names the pickle codec is refused before its bytes are decoded.

    The codec is switched on here, as it is in older numcodecs, so that only the refusal keeps the code from
    running.
    """
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    _buffer(tmp_path / "buffer.zarr")
    _replace_array(tmp_path / "buffer.zarr", name, dtype, filters, pickle.dumps(_RunsCode()))
    with pytest.raises(DataError, match=r"only numbers and booleans are read|No Zarr data type"):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS)
    assert (CODE_RUNS, (tmp_path / "set").exists()) == ([], False)


def test_codecs_are_taken_from_a_list(tmp_path: Path) -> None:
    """Numbers behind an unlisted codec are refused, too; in format 3, codecs inside of shards count."""
    _buffer(tmp_path / "buffer.zarr")
    _replace_array(tmp_path / "buffer.zarr", "data/pos", "<f8", [{"id": "base64"}], b"AAAAAAAAAAA=")
    with pytest.raises(DataError, match=r"needs the codecs \['base64'\]"):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS)
    sharded = zarr.create_group(tmp_path / "v3").create_array(
        "a", data=np.arange(10.0), chunks=(5,), shards=(10,)
    )
    assert set(codec_names(sharded.metadata.to_dict())) == {"sharding_indexed", "bytes", "zstd", "crc32c"}


def test_damaged_chunk_is_reported(tmp_path: Path) -> None:
    _buffer(tmp_path / "buffer.zarr")
    (tmp_path / "buffer.zarr/data/pos/0.0").write_bytes(b"\x02\x01\x21\x08" + bytes(40))
    with pytest.raises(DataError, match="data/pos cannot be read"):
        import_replay_buffer(tmp_path / "buffer.zarr", tmp_path / "set", SMALL, KEYS)
