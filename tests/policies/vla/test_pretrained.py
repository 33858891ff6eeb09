"""`policy.backbone=<folder>`: real models of every family, small and with random weights."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from policies.vla.config import VlaConfig
from policies.vla.families import FAMILIES, KEPT_PROMPTS
from policies.vla.pictures import resized
from policies.vla.policy import VlaPolicy
from policies.vla.pretrained import PretrainedBackbone
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer
from tests.policies.vla.pretrained_folders import MAKERS, SPECIAL, write_folder
from tests.policies.vla.test_policy import SEEING, TP, env, noise, observation

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

needs_peft = pytest.mark.skipif(
    find_spec("peft") is None,
    reason="peft is not installed: pip install 'robo-rl[lora]'",
)
LAYERS = 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: write_folder(kind, root / kind) for kind in MAKERS}


def policy(folder: Path, **changes: Any) -> VlaPolicy:
    """Small policy whose expert is not at its zero start, where actions would depend on nothing."""
    torch.manual_seed(0)
    config = VlaConfig(backbone=str(folder), width=32, draws=1, **changes)
    made = VlaPolicy(env(SEEING), Normalizer({"state": (3,)}), config, TP, 2)
    for parameter in made.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


def backbone_of(vla: VlaPolicy) -> PretrainedBackbone:
    assert isinstance(vla.backbone, PretrainedBackbone)
    return vla.backbone


def test_every_family_is_tested() -> None:
    assert MAKERS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("kind", MAKERS)
def test_keys_and_values_of_every_layer_reach_the_expert(kind: str, folders: dict[str, Path]) -> None:
    """The gradient of an action with respect to each of them is not zero."""
    vla = policy(folders[kind])
    with torch.no_grad():
        cond = vla.encode(observation("open", "close the drawer"))
    assert len(cond.keys) == len(cond.values) == LAYERS
    keys, values = (tuple(layer.requires_grad_() for layer in layers) for layers in (cond.keys, cond.values))
    vla.sample_from(replace(cond, keys=keys, values=values), noise(2)).square().sum().backward()
    for layer in (*keys, *values):
        assert layer.grad is not None
        assert layer.grad[cond.mask[:, None].expand(layer.shape[:3])].abs().max() > 0
        assert layer.grad[~cond.mask[:, None].expand(layer.shape[:3])].abs().max() == 0


@torch.no_grad()
@pytest.mark.parametrize("kind", MAKERS)
def test_words_and_each_picture_change_the_action(kind: str, folders: dict[str, Path]) -> None:
    vla, obs = policy(folders[kind]), observation("open the drawer")
    chunk = vla.sample(obs, noise(1))
    assert (vla.sample(observation("close the drawer"), noise(1)) - chunk).abs().max() > 1e-4
    for key in ("image.top", "image.wrist"):
        assert (vla.sample({**obs, key: 255 - obs[key]}, noise(1)) - chunk).abs().max() > 1e-4


@torch.no_grad()
@pytest.mark.parametrize("kind", MAKERS)
def test_the_name_of_a_control_token_is_text(kind: str, folders: dict[str, Path]) -> None:
    """Each letter is a token of this tokenizer; none of them stands for a picture or ends the text."""
    vla = policy(folders[kind])
    prompts, start = backbone_of(vla)._prompts, len(backbone_of(vla)._prompts._start)
    closing = len(FAMILIES[kind].closing)
    for text in ("open the <image> drawer", "<|image_pad|>", "stop <eos>"):
        words = prompts.ids(text)[start:]
        assert len(words) == len(text) + closing
        assert min(words) >= len(SPECIAL)
    assert vla.sample(observation("open the <image> drawer"), noise(1)).isfinite().all()


def test_a_tokenizer_that_does_not_split_control_tokens_is_told(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ignores `split_special_tokens`."""
    prompts = backbone_of(policy(folders["smolvlm"]))._prompts
    real = prompts._tokenizer

    def ids(text: str, **options: Any) -> Any:
        return real(text, **(options | {"split_special_tokens": False}))

    ignoring = mock.Mock(side_effect=ids, convert_ids_to_tokens=real.convert_ids_to_tokens)
    monkeypatch.setattr(prompts, "_tokenizer", ignoring)
    with pytest.raises(ConfigError, match="holds <eos>, <image>, which the tokenizer"):
        prompts.ids("open the <image> drawer <eos>")


@torch.no_grad()
@pytest.mark.parametrize("kind", MAKERS)
def test_padding_changes_nothing(kind: str, folders: dict[str, Path]) -> None:
    """A short instruction alone and beside a long one; pictures of the two rows are not mixed up."""
    vla = policy(folders[kind])
    both = observation("open", "close " * 10)
    for key in ("image.top", "image.wrist"):
        both[key][1] = 255 - both[key][1]
    rows = [{key: value[i : i + 1] for key, value in both.items()} for i in range(2)]
    alone = torch.cat([vla.sample(row, noise(1)) for row in rows])
    torch.testing.assert_close(vla.sample(both, noise(2)), alone, atol=1e-5, rtol=0)


def processor(kind: str, folder: Path) -> Any:
    """The picture processor of `transformers`, in its variant without torchvision."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    classes = {"smolvlm": SmolVLMImageProcessorPil, "paligemma": SiglipImageProcessorPil}
    made: Any = classes.get(kind, Qwen2VLImageProcessorPil).from_pretrained(folder, local_files_only=True)
    return made


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("side", [(48, 48), (29, 29)], ids=["smaller", "larger"])
def test_pictures_are_those_of_the_models_own_processor(
    kind: str, side: tuple[int, int], folders: dict[str, Path]
) -> None:
    """Same layout; values differ by the rounding of resized bytes, and for SmolVLM by two resizes in turn."""
    pytest.importorskip("PIL", reason="pillow is not installed: pip install 'robo-rl[vla]'")
    rows, columns = np.mgrid[0 : side[0], 0 : side[1]] / side[0]
    waves = [0.5 + 0.4 * np.sin(3.0 * rows + i + 2.0 * columns) for i in range(3)]
    picture = (255.0 * np.stack(waves, axis=-1)).astype(np.uint8)
    expected = processor(kind, folders[kind])(picture, return_tensors="pt")["pixel_values"]
    family = FAMILIES[kind]
    settings = json.loads((folders[kind] / "preprocessor_config.json").read_text())
    config = backbone_of(policy(folders[kind])).vlm.config
    layout = family.layout(settings, config, side)
    one = torch.from_numpy(picture).unsqueeze(0)
    pixels = resized(one, layout.side, settings["image_mean"], settings["image_std"])
    ours = family.inputs([pixels], torch.zeros(1, 5, dtype=torch.bool), settings)["pixel_values"]
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() < (0.08 if kind == "smolvlm" else 0.03)


def loss_of(vla: VlaPolicy) -> Tensor:
    draw = torch.randn(2, TP, 2, generator=torch.Generator().manual_seed(4))
    return vla.bc_loss(observation("open", "close"), torch.ones(2, TP, 2), draw, torch.rand(2)).mean()


def test_a_frozen_model_gets_no_gradient(folders: dict[str, Path]) -> None:
    """The expert does."""
    vla = policy(folders["smolvlm"]).train()
    loss_of(vla).backward()
    assert all(part.grad is None for part in vla.backbone.parameters())
    assert all(part.grad is not None for part in vla.net.blocks[-1].parameters())


@needs_peft
@pytest.mark.parametrize("kind", MAKERS)
def test_only_adapters_get_a_gradient(kind: str, folders: dict[str, Path]) -> None:
    """At first only in the second matrix of each pair, because that is zero; and the prefix is unchanged."""
    vla, frozen = policy(folders[kind], lora=4).train(), policy(folders[kind])
    with torch.no_grad():
        obs = observation("open")
        for one, two in zip(vla.encode(obs).values, frozen.encode(obs).values, strict=True):
            torch.testing.assert_close(one, two)
    loss_of(vla).backward()
    grown = {name for name, part in vla.backbone.named_parameters() if part.grad is not None}
    assert grown
    assert all(".lora_" in name for name in grown)
    seconds = [part for name, part in vla.backbone.named_parameters() if ".lora_B" in name and name in grown]
    assert all(part.grad is not None and part.grad.abs().max() > 0 for part in seconds)


class Steps:
    """Trainer of two windows."""

    def __init__(self, vla: VlaPolicy) -> None:
        obs = observation("open", "close")
        source = TensorWindows(dict(obs), torch.rand(2, TP, 2, generator=torch.Generator().manual_seed(5)))
        recipe = BaseTrainConfig(steps=4, batch_size=2, lr=1e-2, warmup_steps=0)
        self.trainer = BaseTrainer(vla, source, recipe)

    def run(self, until: int) -> BaseTrainer[VlaPolicy]:
        while self.trainer.step < until:
            self.trainer.advance()
        return self.trainer


@needs_peft
def test_training_changes_adapters_alone_and_resumes_exactly(folders: dict[str, Path]) -> None:
    """Policy and average share the frozen weights, which stay as they were; a checkpoint has no copy."""
    vla = policy(folders["smolvlm"], lora=4)
    before = {name: part.clone() for name, part in backbone_of(vla).frozen().items()}
    whole = Steps(vla).run(4)
    for name, part in backbone_of(whole.policy).frozen().items():
        assert torch.equal(part, before[name])
        assert part is backbone_of(whole.average).frozen()[name]
    half = Steps(policy(folders["smolvlm"], lora=4)).run(2).state_dict()
    names = [name for name in half["policy"] if name.startswith("backbone.")]
    assert names
    assert all(".lora_" in name or name == "backbone.checksum" for name in names)
    rest = Steps(policy(folders["smolvlm"], lora=4))
    rest.trainer.load_state_dict(copy.deepcopy(half))
    resumed = rest.run(4)
    for one, two in zip(whole.average.parameters(), resumed.average.parameters(), strict=True):
        assert torch.equal(one, two)


@needs_peft
@torch.no_grad()
def test_a_saved_policy_acts_alike_and_refers_to_its_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its files hold adapters and expert. Other weights in the folder, or none, are refused."""
    model = shutil.copytree(folders["smolvlm"], tmp_path / "model")
    vla, obs = policy(model, lora=4), observation("open the drawer")
    for name, part in vla.backbone.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.normal_(part, std=0.1)
    save_policy(tmp_path / "saved", vla)
    loaded = load_policy(tmp_path / "saved")
    assert torch.equal(loaded.sample(obs, noise(1)), vla.sample(obs, noise(1)))
    write_folder("smolvlm", model, seed=1)
    with pytest.raises(CheckpointError, match="not those that the policy was trained with"):
        load_policy(tmp_path / "saved")
    shutil.rmtree(model)
    with pytest.raises(CheckpointError, match=f"{model}, which is no folder .* Put that model back in this"):
        load_policy(tmp_path / "saved")


def test_fewer_layers_can_be_used(folders: dict[str, Path]) -> None:
    """The first ones, so the expert has as many."""
    vla, entire = policy(folders["qwen3_vl"], backbone_layers=2), policy(folders["qwen3_vl"])
    assert len(vla.net.blocks) == 2
    with torch.no_grad():
        few, all_of_them = (each.encode(observation("open")) for each in (vla, entire))
    torch.testing.assert_close(few.keys[1], all_of_them.keys[1])
    with pytest.raises(ConfigError, match="exceeds the 3 text layers"):
        policy(folders["smolvlm"], backbone_layers=4)


def without(*patterns: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink()

    return remove


def edited(name: str, **changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({k: v for k, v in (data | changes).items() if v is not None}))

    return edit


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def one_tensor_less(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.text_model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (without("tokenizer*"), "has no tokenizer"),
        (without("preprocessor_config.json"), "has no picture processor"),
        (without("config.json"), "needs a readable config.json"),
        (pickled, "Pickled ones are not read"),
        (one_tensor_less, "lacks the weights of 1 tensors, such as 'model.text_model.layers.1.mlp"),
        (cut_short, "weights in .* cannot be read"),
        (
            edited("config.json", model_type="llama"),
            "holds a model of type 'llama', expected one of: smolvlm",
        ),
        (edited("config.json", quantization_config={"bits": 4}), "quantised"),
        (edited("preprocessor_config.json", image_mean=None), "lacks the setting 'image_mean'"),
        (edited("preprocessor_config.json", max_image_size="big"), "picture processor in"),
    ],
)
def test_a_folder_that_lacks_something_is_refused(
    damage: Callable[[Path], None], sentence: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """One sentence says what, and what to do."""
    folder = shutil.copytree(folders["smolvlm"], tmp_path / "model")
    damage(folder)
    with pytest.raises(ConfigError, match=sentence):
        policy(folder)


def test_a_tokenizer_of_another_model_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["smolvlm"], tmp_path / "model")
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<global-img>", "<another>"))
    with pytest.raises(ConfigError, match="has no token '<global-img>'"):
        policy(folder)


def test_names_and_settings_without_a_model_are_refused(tmp_path: Path) -> None:
    """A name on a hub is no folder, and nothing is downloaded; tiny has no adapters."""
    with pytest.raises(ConfigError, match="Nothing is downloaded"):
        policy(Path("HuggingFaceTB/SmolVLM2-500M-Video-Instruct"))
    for setting in ({"lora": 4}, {"backbone_layers": 2}):
        with pytest.raises(ConfigError, match=r"has no effect on policy\.backbone=tiny"):
            policy(Path("tiny"), **setting)
    with pytest.raises(ConfigError, match="bring their tokenizer"):
        policy(tmp_path, tokens="bytes")
    with pytest.raises(ConfigError, match=r"policy\.film=true needs policy\.backbone=tiny"):
        policy(tmp_path, film=True)


@torch.no_grad()
def test_an_instruction_is_tokenised_once(folders: dict[str, Path]) -> None:
    vla = policy(folders["smolvlm"])
    calls: list[str] = []
    prompts = backbone_of(vla)._prompts
    real = prompts._tokenizer
    prompts._tokenizer = lambda text, **options: calls.append(text) or real(text, **options)  # type: ignore[func-returns-value]
    for _ in range(2):
        vla.encode(observation("open", "close", "open"))
    assert calls == ["open", "close"]
    assert INSTRUCTION in vla.obs_spec
    for i in range(2 * KEPT_PROMPTS):  # training varies instructions without end
        prompts.ids(str(i))
    assert len(prompts._ids) <= KEPT_PROMPTS
