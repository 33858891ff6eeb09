"""Single-step head: decisions per CPU-second on one core, and change of success by distillation.

    python benchmarks/head.py  # speed
    python benchmarks/head.py --teacher runs/demo/steering --head runs/demo/head  # and success, 200 episodes

Speed is the number of `sample` calls, from raw observation to chunk, per second of CPU time of one thread in
ONNX Runtime. The base policy for comparison has the same network and takes 10 denoising steps.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.deploy.bundle import load_bundle
from policies.deploy.bundle_writer import write_bundle
from policies.deploy.runner import OnnxPolicy
from policies.observation import ObsEncoder
from policies.registry import SavedPolicy
from policies.tuned.single_step import SingleStepPolicy
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.unet1d import Unet1dConfig

# Shape of Diffusion Policy's low-dimensional tasks: a condition of 2 x 20 numbers, chunks of 16 2-D actions.
ENV = EnvSpec("benchmark/head", {"state": ArraySpec((20,))}, ActionSpec((-1.0,) * 2, (1.0,) * 2), 300, 10.0)
TO, TP, TA = 2, 16, 8


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--teacher", type=Path, help="policy folder or run that the head was distilled from")
    options.add_argument("--head", type=Path, help="policy folder or run of the head")
    options.add_argument("--episodes", type=int, default=200, help="number of paired episodes")
    args = options.parse_args()
    torch.set_num_threads(1)
    rounds = 5 if args.quick else 40
    with tempfile.TemporaryDirectory() as folder:
        nets: dict[str, NetConfig] = {
            "mlp": MlpDenoiserConfig(),
            "unet_5m": Unet1dConfig(widths=[64, 128, 256]),
        }
        if args.quick:
            del nets["unet_5m"]  # writing the graph of its 10 steps takes a minute
        for name, net in nets.items():
            head, base = (
                runnable(policy, Path(folder) / f"{name}-{kind}") for kind, policy in make(net).items()
            )
            fast, slow = interleaved(head, base, rounds)
            emit(
                f"head/{name}/decisions_per_s",
                1.0 / fast,
                "decisions/cpu-s",
                threads=1,
                runtime="onnxruntime",
            )
            emit(f"head/{name}/speedup_vs_10_steps", slow / fast, "ratio", base_decisions_per_s=1.0 / slow)
    if args.teacher and args.head:
        success_gap(args.teacher, args.head, 20 if args.quick else args.episodes)


def make(net: NetConfig) -> dict[str, SavedPolicy]:
    """A head and a 10-step base with this network and random weights, which do not affect the speed."""
    normalizer = Normalizer({"state": (20,)})
    encoder = ObsEncoder(ENV.obs, TO, normalizer, ImageEncoderConfig())
    shape = GenerativeConfig(TO, TP, TA, net, FlowConfig(steps=10))
    return {
        "head": SingleStepPolicy(ENV, encoder, net, TO, TP, TA).eval(),
        "base": GenerativePolicy.build(ENV, normalizer, shape).eval(),
    }


def runnable(policy: SavedPolicy, folder: Path) -> OnnxPolicy:
    bundle = write_bundle(folder, policy, ENV, name="head", noise="gaussian", training={})
    return OnnxPolicy(load_bundle(bundle.folder), "cpu", threads=1)


def interleaved(first: ChunkPolicy, second: ChunkPolicy, rounds: int) -> tuple[float, float]:
    """Best CPU seconds per decision of each, measured in turns: load of other processes only makes both
    slower.
    """
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, policy in enumerate((first, second)):
            best[i] = min(best[i], seconds_per_decision(policy))
    return best[0], best[1]


def seconds_per_decision(policy: ChunkPolicy, decisions: int = 50) -> float:
    obs = {"state": torch.randn(1, TO, 20)}
    noise = torch.randn(decisions, 1, TP, 2)
    policy.sample(obs, noise[0])
    start_s = time.process_time()
    for each in noise:
        policy.sample(obs, each)
    return (time.process_time() - start_s) / decisions


def success_gap(teacher: Path, head: Path, episodes: int) -> None:
    """Success of the teacher minus that of the head on the same episodes, in percentage points."""
    from policies.base.noise import EpisodeNoise
    from policies.executor import ChunkExecutor
    from robo_rl.eval.rollout import compare, eval_seeds, evaluate
    from robo_rl.runs.loaded_policy import open_policy
    from sim.registry import make_env

    actors = [open_policy(path, torch.device("cpu")) for path in (teacher, head)]
    env = make_env(actors[0].env, 10)
    seeds = eval_seeds(3, episodes)
    results = []
    for actor in actors:
        noise = EpisodeNoise((actor.policy.chunk, actor.policy.action_spec.dim), actor.noise)
        results.append(evaluate(env, actor.policy, ChunkExecutor, noise, seeds))
    env.close()
    gap = 100 * (results[0].rate.rate - results[1].rate.rate)
    p = compare(results[0], results[1]).p_value
    emit(
        "head/success_gap_points",
        gap,
        "points",
        teacher=str(results[0].rate),
        head=str(results[1].rate),
        mcnemar_p=p,
    )


if __name__ == "__main__":
    main()
