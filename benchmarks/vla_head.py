"""Single-step head of a vision-language-action policy: decisions per second, with prefix and head apart.

    python benchmarks/vla_head.py

Both policies have the network of `robo-rl train policy=vla` with two cameras and random weights, which do not
affect the speed, and run as bundles in ONNX Runtime on one thread. The head takes one call of the action
expert, the base policy ten. `vla/head/speedup` compares their decisions per second of CPU time at control
rate, where the prefix of the newest pictures is kept; `vla/head/speedup_with_prefix` counts a run of the
prefix for every decision, as at a plan from new pictures.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from policies.deploy.bundle_writer import write_bundle
from policies.deploy.kept_prefix import KeptPrefix
from policies.deploy.runner import OnnxPolicy
from policies.vla.config import VlaConfig, VlaFlowConfig
from policies.vla.policy import VlaPolicy
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.normalizer import Normalizer
from robo_rl.eval.timing import percentiles_ms

PICTURE = ArraySpec((64, 64, 3), "uint8")
STATE = ArraySpec((4,), unit="m")
ENV = EnvSpec(
    "benchmark/vla",
    {"state": STATE, "image.top": PICTURE, "image.corner": PICTURE, INSTRUCTION: INSTRUCTION_SPEC},
    ActionSpec((-1.0,) * 4, (1.0,) * 4),
    200,
    80.0,
)  # shapes of the MetaWorld suites
CHUNK, EXECUTE, STEPS = 16, 8, 10


def main() -> None:
    args = parser(__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    decisions = 100 if args.quick else 2000
    with tempfile.TemporaryDirectory() as folder:
        head, base = (runnable(steps, Path(folder) / str(steps)) for steps in (1, STEPS))
        head_s, base_s, prefix_s = timed(head, base, decisions)
    fast, slow, seen = min(head_s), min(base_s), min(prefix_s)
    shared = {"threads": 1, "runtime": "onnxruntime", "steps": STEPS}
    emit("vla/head/speedup", slow / fast, "ratio", decisions_per_s=1.0 / fast, **shared)
    emit("vla/head/speedup_with_prefix", (slow + seen) / (fast + seen), "ratio", **shared)
    for name, seconds in (("head", head_s), ("ten_step_head", base_s), ("prefix", prefix_s)):
        p50, p99 = percentiles_ms(seconds)
        emit(f"vla/head/{name}_cpu_ms_p50", p50, "ms", p99=p99, least=1e3 * min(seconds), decisions=decisions)


def runnable(steps: int, folder: Path) -> OnnxPolicy:
    """The policy with this many transitions, as a bundle."""
    torch.manual_seed(0)
    config = VlaConfig(process=VlaFlowConfig(steps=steps))
    policy = VlaPolicy(ENV, Normalizer({"state": STATE.shape}), config, CHUNK, EXECUTE).eval()
    bundle = write_bundle(folder, policy, ENV, name="vla", noise="gaussian", training={})
    return OnnxPolicy(bundle, "cpu", threads=1)


def timed(head: OnnxPolicy, base: OnnxPolicy, decisions: int) -> tuple[list[float], list[float], list[float]]:
    """CPU seconds of each call of head, base and prefix, in turns: load makes all slower."""
    rng = torch.Generator().manual_seed(0)
    out: tuple[list[float], list[float], list[float]] = ([], [], [])
    for i in range(decisions + 5):
        obs, noise = observation(rng), torch.randn(1, CHUNK, 4, generator=rng)
        for policy, seconds in ((head, out[0]), (base, out[1])):
            prefix = policy.prefix
            assert isinstance(prefix, KeptPrefix)
            start_s = time.process_time()
            prefix(obs)
            seen_s = time.process_time()
            policy.sample(obs, noise)
            end_s = time.process_time()
            if i >= 5:
                out[2].append(seen_s - start_s)
                seconds.append(end_s - seen_s)
    return out


def observation(rng: torch.Generator) -> Obs:
    """One observation with pictures of its own."""
    size = (1, 1, *PICTURE.shape)
    return {
        "state": torch.rand(1, 1, *STATE.shape, generator=rng),
        "image.top": torch.randint(0, 256, size, generator=rng, dtype=torch.uint8),
        "image.corner": torch.randint(0, 256, size, generator=rng, dtype=torch.uint8),
        INSTRUCTION: torch.from_numpy(to_bytes("please open the faucet").copy())[None, None],
    }


if __name__ == "__main__":
    main()
