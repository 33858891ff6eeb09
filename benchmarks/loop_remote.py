"""Decisions of a policy server in another process, over loopback; called by `loop.py`.

    python benchmarks/loop_remote.py             # state alone, and two pictures of 224 x 224

Each decision is measured at the client, at the server (its own time for the same decision) and, for
comparison, in the client's process; the overhead is the first less the second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import emit, parser

from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.deploy.bundle import Bundle
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.runner import OnnxPolicy
from policies.remote.address import parse_address
from policies.remote.client import PolicyConnection
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig

ROOT = Path(__file__).resolve().parents[1]
STATE = {"state": ArraySpec((14,), unit="SI")}
PICTURES = {f"image.{name}": ArraySpec((224, 224, 3), "uint8") for name in ("front", "wrist")}
WARM_UP = 50


def main() -> None:
    args = parser(__doc__.splitlines()[0]).parse_args()
    measure(args.quick)


def measure(quick: bool) -> None:
    """Emit all numbers."""
    torch.set_num_threads(1)
    for case, obs in (("state", STATE), ("pictures", STATE | PICTURES)):
        rounds = (100 if quick else 2000) if case == "state" else (20 if quick else 200)
        with tempfile.TemporaryDirectory() as folder:
            bundle = make_bundle(Path(folder) / "bundle", obs)
            with server(bundle) as address:
                measure_case(case, bundle, address, rounds)


def measure_case(case: str, bundle: Bundle, address: str, rounds: int) -> None:
    connection, local = PolicyConnection(parse_address(address)), OnnxPolicy(bundle, "cpu")
    rng = np.random.default_rng(0)
    obs = {
        key: rng.integers(0, 256, (1, 1, *spec.shape)).astype(spec.dtype)
        for key, spec in bundle.env.obs.items()
    }
    noise = rng.standard_normal((1, bundle.chunk, bundle.env.action.dim)).astype(np.float32)
    tensors, drawn = {key: torch.from_numpy(value) for key, value in obs.items()}, torch.from_numpy(noise)
    times_ms: dict[str, list[float]] = {"local": [], "remote": [], "overhead": []}
    for i in range(WARM_UP + rounds):  # in turns, so that the machine's load is the same for both
        begin_s = time.perf_counter()
        expected = local.sample(tensors, drawn)
        between_s = time.perf_counter()
        chunk = connection.sample(obs, noise)
        took_s = time.perf_counter() - between_s
        assert np.array_equal(chunk, expected.numpy())
        if i >= WARM_UP:
            times_ms["local"].append(1e3 * (between_s - begin_s))
            times_ms["remote"].append(1e3 * took_s)
            times_ms["overhead"].append(1e3 * (took_s - connection.decided_s))
    connection.close()
    extra = {"n": rounds, "request_bytes": bundle_bytes(obs, noise), "load": os.getloadavg()[0]}
    for name, found in times_ms.items():
        half, most = np.percentile(found, [50, 99])
        emit(f"loop/remote/{case}/{name}_ms_p99", float(most), "ms", p50=float(half), **extra)


def bundle_bytes(obs: dict[str, np.ndarray], noise: np.ndarray) -> int:
    return noise.nbytes + sum(array.nbytes for array in obs.values())


def make_bundle(folder: Path, obs: dict[str, ArraySpec]) -> Bundle:
    """Flow of 10 steps, MLP 256 x 3, chunks of 16 actions of 7 joints, small encoders; random weights."""
    env = EnvSpec("benchmark/remote", obs, ActionSpec((-1.0,) * 7, (1.0,) * 7), 1000, 50.0)
    normalizer = Normalizer.fit({"state": torch.rand(64, 14)})
    config = GenerativeConfig(
        chunk=16,
        execute=8,
        net=MlpDenoiserConfig(width=256, depth=3),
        image=ImageEncoderConfig(widths=[16, 32], keypoints=16),
    )
    policy = GenerativePolicy(env, normalizer, config, Flow(FlowConfig(steps=10))).eval()
    return write_bundle(folder, policy, env, name="remote", noise="gaussian", training={})


@contextmanager
def server(bundle: Bundle) -> Iterator[str]:
    """Address of a `robo-rl serve` that runs during the block."""
    command = [sys.executable, "-m", "robo_rl", "serve", f"policy={bundle.folder}", "port=0", "device=cpu"]
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "listening on " in line)
        yield line.split("listening on ")[1].split(";")[0]
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    main()
