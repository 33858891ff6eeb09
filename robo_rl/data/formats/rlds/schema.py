"""features.json of TensorFlow Datasets: types and shapes of an RLDS dataset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_json
from robo_rl.core.spec import ArraySpec

FEATURES, DATASET_INFO = "features.json", "dataset_info.json"
VERSION = "1.0.0"
_CORE = "tensorflow_datasets.core.features"
_LARGEST_SIDE = 1 << 24


@dataclass(frozen=True, slots=True)
class RldsFeature:
    """One column of the steps. kind: "tensor", "image" or "text"."""

    kind: str
    shape: tuple[int, ...]
    dtype: str


def tensor(shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    inner = {"shape": dimensions, "dtype": dtype, "encoding": "none"}
    return {"pythonClassName": f"{_CORE}.tensor_feature.Tensor", "tensor": inner}


def image(spec: ArraySpec) -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in spec.shape]}
    inner = {"shape": shape, "dtype": "uint8", "encodingFormat": "png"}
    return {"pythonClassName": f"{_CORE}.image_feature.Image", "image": inner}


def text() -> dict[str, Any]:
    return {"pythonClassName": f"{_CORE}.text_feature.Text", "text": {}}


def group(features: dict[str, Any]) -> dict[str, Any]:
    name = f"{_CORE}.features_dict.FeaturesDict"
    return {"pythonClassName": name, "featuresDict": {"features": features}}


def steps(feature: dict[str, Any]) -> dict[str, Any]:
    sequence = {"feature": feature, "length": "-1"}
    return {"pythonClassName": f"{_CORE}.dataset_feature.Dataset", "sequence": sequence}


def load_features(folder: Path) -> dict[str, RldsFeature]:
    """Columns of the steps by name, e.g. "observation/state". Raises DataError for another structure."""
    try:
        root = read_json(folder / FEATURES)["featuresDict"]["features"]["steps"]
        inner = root["sequence"]["feature"]["featuresDict"]["features"]
        return dict(_flattened("", inner))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{folder / FEATURES} describes no episodes of steps ({error!r}). Give the folder with the "
            "version number of an RLDS dataset."
        ) from error


def _flattened(prefix: str, features: dict[str, Any]) -> Iterator[tuple[str, RldsFeature]]:
    for name, entry in features.items():
        if "featuresDict" in entry:
            yield from _flattened(f"{prefix}{name}/", entry["featuresDict"]["features"])
        elif "image" in entry:
            yield prefix + name, RldsFeature("image", _shape(entry["image"]), "uint8")
        elif "text" in entry:
            yield prefix + name, RldsFeature("text", (), "")
        elif "tensor" in entry:
            inner = entry["tensor"]
            kind = "text" if inner["dtype"] == "string" else "tensor"
            yield prefix + name, RldsFeature(kind, _shape(inner), str(inner["dtype"]))


def _shape(entry: dict[str, Any]) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in entry.get("shape", {}).get("dimensions", ()))
    if any(not 0 < size < _LARGEST_SIDE for size in sizes):
        raise ValueError(f"shape {sizes}")
    return sizes
