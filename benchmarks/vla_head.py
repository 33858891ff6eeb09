"""Single-step head of a vision-language-action policy: decisions per second, with prefix and head apart.

    python benchmarks/vla_head.py
    python benchmarks/vla_head.py --teacher runs/vla/vla_mt6 --folder runs/vla

Both policies have the network of `robo-rl train policy=vla` with two cameras and random weights, which do not
affect the speed, and run as bundles in ONNX Runtime on one thread. The head takes one call of the action
expert, the base policy ten. `vla/head/speedup` compares their decisions per second of CPU time at control
rate, where the prefix of the newest pictures is kept; `vla/head/speedup_with_prefix` counts a run of the
prefix for every decision, as at a plan from new pictures.

With --teacher, a policy of benchmarks/vla.py, its head is distilled in --folder, and `vla/head/loss_points`
is the teacher's success minus the head's on the same episodes, in points. --only measures one of both.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, own_folder, parser, verb

from policies.deploy.bundle_writer import write_bundle
from policies.deploy.kept_prefix import KeptPrefix
from policies.deploy.runner import OnnxPolicy
from policies.vla.config import VlaConfig, VlaFlowConfig
from policies.vla.policy import VlaPolicy
from policies.vocabulary import vocabulary_of
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.normalizer import Normalizer
from robo_rl.eval.stats import paired_test
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
TOLD = "please open the faucet"
WORDS = vocabulary_of([TOLD])


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--teacher", type=Path, help="run of a policy to distil; none: speed only")
    options.add_argument("--folder", type=Path, default=Path("runs/vla"), help="the head is kept here")
    options.add_argument("--set", nargs="*", default=[], help="more settings of distillation, key=value")
    options.add_argument("--episodes", type=int, default=120, help="evaluation episodes")
    options.add_argument("--only", choices=("speed", "loss"), help="lines to measure; none: both")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.only != "loss":
        say_speed(100 if args.quick else 2000, 2 if args.quick else STEPS)
    if args.teacher is not None and args.only != "speed":
        say_loss(args.teacher, own_folder(args.folder) / f"head_of_{args.teacher.name}", args)


def say_speed(decisions: int, steps: int) -> None:
    """Time the head, and the policy of this many transitions: each is exported, which takes long for many."""
    with tempfile.TemporaryDirectory() as folder:
        head, base = (runnable(each, Path(folder) / str(each)) for each in (1, steps))
        head_s, base_s, prefix_s = timed(head, base, decisions)
    fast, slow, seen = min(head_s), min(base_s), min(prefix_s)
    shared = {"threads": 1, "runtime": "onnxruntime", "steps": steps}
    emit("vla/head/speedup", slow / fast, "ratio", decisions_per_s=1.0 / fast, **shared)
    emit("vla/head/speedup_with_prefix", (slow + seen) / (fast + seen), "ratio", **shared)
    for name, seconds in (("head", head_s), ("ten_step_head", base_s), ("prefix", prefix_s)):
        p50, p99 = percentiles_ms(seconds)
        emit(f"vla/head/{name}_cpu_ms_p50", p50, "ms", p99=p99, least=1e3 * min(seconds), decisions=decisions)


def say_loss(teacher: Path, out: Path, args: Any) -> None:
    """Distil the teacher, unless `out` holds the result, and compare both."""
    if not (out / "results.json").exists():
        again = "resume=true" if (out / "run.json").exists() else "overwrite=true"
        given = {"teacher": teacher, "out": out, "batch_size": 64, "eval_episodes": args.episodes}
        verb("distill", again, *args.set, **given)
    found = json.loads((out / "results.json").read_text())
    outcomes = {name: found[name]["success"] for name in ("head", "teacher")}
    k = {name: sum(each) for name, each in outcomes.items()}
    n = len(outcomes["head"])
    test = paired_test(outcomes["teacher"], outcomes["head"])
    emit(
        "vla/head/loss_points",
        100.0 * (k["teacher"] - k["head"]) / n,
        "points",
        head=[k["head"], n],
        teacher=[k["teacher"], n],
        p=test.p_value,
        settings=args.set,
    )


def runnable(steps: int, folder: Path) -> OnnxPolicy:
    """The policy with this many transitions, as a bundle."""
    policy = random_policy(steps)
    bundle = write_bundle(folder, policy, ENV, name="vla", noise="gaussian", training={})
    return OnnxPolicy(bundle, "cpu", threads=1)


def random_policy(steps: int = STEPS) -> VlaPolicy:
    """Policy of random weights with this many transitions."""
    torch.manual_seed(0)
    config = VlaConfig(process=VlaFlowConfig(steps=steps))
    return VlaPolicy(ENV, Normalizer({"state": STATE.shape}), config, CHUNK, EXECUTE, WORDS).eval()


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
        INSTRUCTION: torch.from_numpy(to_bytes(TOLD).copy())[None, None],
    }


if __name__ == "__main__":
    main()
