"""Training states are restored exactly, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import CheckpointError
from robo_rl.core.files.state_io import load_state, save_state


def test_round_trip_is_exact(tmp_path: Path) -> None:
    """Nested dicts, integer keys (optimiser states), lists, None, odd dtypes and shared memory."""
    shared = torch.randn(3)
    state = {
        "a": {"b": shared, "c": shared[:2], 3: {"step": torch.tensor(2.0)}},
        "list": [1, 2.5, "x", None, True, torch.arange(3)],
        "none": None,
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
        "empty": {},
        "width0": torch.zeros(4, 0),
    }
    save_state(tmp_path, state)
    back = load_state(tmp_path)
    assert torch.equal(back["a"]["b"], shared)
    assert torch.equal(back["a"]["c"], shared[:2])
    assert back["a"][3]["step"] == 2.0
    assert back["list"][:5] == [1, 2.5, "x", None, True]
    assert torch.equal(back["list"][5], torch.arange(3))
    assert back["none"] is None
    assert back["empty"] == {}
    assert back["bytes"].dtype == torch.uint8
    assert back["width0"].shape == (4, 0)


def test_an_optimiser_continues_bit_for_bit(tmp_path: Path) -> None:
    """A resumed run needs Adam's moments and step count."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.Adam([weight], fused=True)
    for _ in range(3):
        weight.grad = torch.full((4,), 0.5)
        optimizer.step()
    save_state(tmp_path, {"weight": weight.detach(), "optimizer": optimizer.state_dict()})
    back = load_state(tmp_path)
    other = back["weight"].clone().requires_grad_()
    again = torch.optim.Adam([other], fused=True)
    again.load_state_dict(back["optimizer"])
    for one, opt in ((weight, optimizer), (other, again)):
        one.grad = torch.full((4,), -0.25)
        opt.step()
    assert torch.equal(weight, other)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_damaged_state_is_refused(tmp_path: Path, name: str) -> None:
    """A truncated file must not be loaded in part."""
    save_state(tmp_path, {"x": torch.arange(100.0)})
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError) as error:
        load_state(tmp_path)
    assert ".." not in str(error.value).replace(str(tmp_path), "")


def test_a_flipped_digit_is_refused(tmp_path: Path) -> None:
    """Plain values have a checksum like tensors: step 400 must not become step 500."""
    save_state(tmp_path, {"step": 400, "x": torch.arange(3.0)})
    path = tmp_path / "state.json"
    path.write_text(path.read_text().replace("400", "500"))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        load_state(tmp_path)


def test_absence_is_refused(tmp_path: Path) -> None:
    """A folder without a state is named in the error."""
    with pytest.raises(CheckpointError, match="no readable training state"):
        load_state(tmp_path / "nothing")


def test_nan_and_infinity_round_trip(tmp_path: Path) -> None:
    """A run that diverged must still be saved: infinity and NaN, as numbers and in tensors."""
    save_state(
        tmp_path, {"inf": float("inf"), "list": [float("-inf"), float("nan")], "x": torch.tensor([torch.nan])}
    )
    back = load_state(tmp_path)
    assert back["inf"] == float("inf")
    assert back["list"][0] == float("-inf")
    assert back["list"][1] != back["list"][1]
    assert back["x"].isnan().all()


def test_keys_that_look_like_paths_do_not_collide(tmp_path: Path) -> None:
    """Parameter names hold dots and observation keys may hold slashes; 1 and "1" are two keys."""
    state = {
        "a/b": torch.zeros(1),
        "a": {"b": torch.ones(1)},
        "1": torch.full((1,), 2.0),
        1: torch.full((1,), 3.0),
    }
    save_state(tmp_path, state)
    back = load_state(tmp_path)
    assert [float(value) for value in (back["a/b"], back["a"]["b"], back["1"], back[1])] == [
        0.0,
        1.0,
        2.0,
        3.0,
    ]


def test_tensors_that_share_memory_round_trip(tmp_path: Path) -> None:
    """Networks in one buffer: views and slices of it, also transposed ones."""
    flat = torch.arange(6.0)
    save_state(tmp_path, {"flat": flat, "view": flat.view(2, 3).T, "slice": flat[::2]})
    back = load_state(tmp_path)
    assert back["view"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert back["slice"].tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "text", ["[1, 2]", '{"crc32": 0}', '{"crc32": 3421780262, "state": [1]}', "\x80\x80"]
)
def test_foreign_json_is_refused(tmp_path: Path, text: str) -> None:
    """Edited or foreign files end in one sentence, not in a KeyError."""
    save_state(tmp_path, {"x": torch.arange(3.0)})
    (tmp_path / "state.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError):
        load_state(tmp_path)
