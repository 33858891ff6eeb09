"""The loop of fine-tuning on a device: reads by the host, and what thousands of lanes cost on a CPU.

    python benchmarks/device_loop.py                    # all lines
    python benchmarks/device_loop.py --only cost        # without the count of reads

Names: device/<method>/host_reads (in 48 steps of the form for a GPU, episodes that end included),
device/<method>/strays (tensors made without naming a device, in the same steps), device/vla/<method>/... (the
same with a vision-language-action policy as the base), device/cpu/noise_ms_4096
(initial noise of all lanes, chunks of 16 actions of 6), device/cpu/replay_add_ms_4096 (one decision of all
lanes: median, and the step in which all episodes end together), device/cpu/finetune_env_steps_per_cpu_s
(residual on a world of tensors with 6 joints, one update per 4,096 steps). On a GPU the same lines are named
device/cuda/...
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from device_world import WORDS, DeviceWorld, first_seeds, world_spec
from torch import Tensor

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.base.process import make_process
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import CONF, load_config
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.replay import Replay
from robo_rl.eval.host_reads import HostReads
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.collect import READ_EVERY

LANES = 4096
EPISODE = 48  # decisions, as many as a replay of 200,000 holds in each of 4,096 lanes
CHUNK, JOINTS = 16, 6
NOT_COUNTED = ("auto",)  # it runs other methods
VLA_METHODS = ("steering", "residual", "flow_sde")  # also counted on a vision-language-action base


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=("reads", "cost"), help="one part alone")
    options.add_argument("--methods", help="count the reads of these, separated by commas; default: all")
    args = options.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.only != "cost":
        known = sorted({path.stem for path in (CONF / "method").glob("*.yaml")} - set(NOT_COUNTED))
        if args.quick:  # one of each algorithm
            known = list({_method(name, []).algorithm: name for name in known}.values())
        for name in args.methods.split(",") if args.methods else known:
            host_reads(name, device)
        for name in () if args.methods else VLA_METHODS:
            host_reads(name, device, words=True)
    if args.only != "reads":
        noise(device, rounds=10 if args.quick else 100)
        replay_add(device, episodes=3 if args.quick else 8)
        finetuning(device, steps=20 if args.quick else 200)


def host_reads(name: str, device: torch.device, words: bool = False) -> None:
    """Count the reads of one method. A human who takes over is a part of the world. words: the base is a
    vision-language-action policy.
    """
    lanes = 3  # so few that a replay for thousands would hold millions of rows in each
    settings = ["method.env_steps=1000000", "method.learner.hidden=[8]", "method.utd=0.4",
                "method.replay_capacity=3000"]  # fmt: skip
    base_steps = ["method.base_steps=30", "method.burn_in=2", "method.mix.demo=0", "method.offline_updates=0",
                  "method.learner.batch=8"]  # fmt: skip
    rollouts = _method(name, []).algorithm in ("ppo", "denoising")
    method = _method(name, [*settings, *([] if rollouts else base_steps)])
    if method.mix.demo == 0.0 and not rollouts:
        method.mix.online = 1.0 - method.mix.base - method.mix.intervention
    human = method.intervene != "none"
    world = DeviceWorld(lanes, device=device, intervened=human, words=words or method.map.kind == "tokens")
    session = _session(method, world, device, masked=True)
    tuner = session.tuner
    while tuner.phase != "online" or tuner.env_steps % (READ_EVERY * lanes):
        tuner.advance()
    tuner.advance()
    steps = READ_EVERY - 2
    with HostReads().watching() as found:
        for _ in range(steps):
            if rollouts:  # its learning reads once per rollout
                tuner.collector.begin(tuner._explore)
                tuner.collector.finish()
            else:
                tuner.advance()
    facts = {"steps": steps, "device": device.type}
    prefix = f"device/vla/{name}" if words else f"device/{name}"
    emit(f"{prefix}/host_reads", found.reads.total(), "reads", **facts, places=dict(found.reads))
    emit(f"{prefix}/strays", found.strays.total(), "tensors", **facts, places=dict(found.strays))


def noise(device: torch.device, rounds: int) -> None:
    """Time to draw the initial noise of all lanes."""
    source, lanes = EpisodeNoise((CHUNK, JOINTS), device=device), torch.arange(LANES, device=device)
    source.reset(lanes, lanes)
    decision = torch.zeros_like(lanes)
    times = [_ms(lambda i=i: source.draw(lanes, decision + i), device) for i in range(rounds)]  # type: ignore[misc]
    emit(f"device/{device.type}/noise_ms_{LANES}", _median(times), "ms", numbers=LANES * CHUNK * JOINTS)


def replay_add(device: torch.device, episodes: int) -> None:
    """Time to store one decision of all lanes, which all end together."""
    widths = {"obs": 64, "ctx": 7, "critic_action": 7, "action": 7, "next_obs": 64, "next_ctx": 7}
    store, lanes = Replay(200_000, LANES, widths, device=device), Lanes.all(LANES, device)
    values = {name: torch.rand(LANES, width, device=device) for name, width in widths.items()}
    number, no = torch.rand(LANES, device=device), torch.zeros(LANES, dtype=torch.bool, device=device)
    values |= {"reward": number, "steps": torch.ones_like(number), "demo": torch.zeros_like(number)}
    plain, last = [], []
    for step in range(episodes * EPISODE):
        ends = step % EPISODE == EPISODE - 1
        entry = values | {"terminated": no, "truncated": no | ends, "cut": no}
        taken = _ms(lambda entry=entry: store.add(lanes, entry, 0.99), device)  # type: ignore[misc]
        (last if ends else plain).append(taken)
    # The first episodes touch memory that was never used.
    emit(
        f"device/{device.type}/replay_add_ms_{LANES}",
        _median(plain[EPISODE:]),
        "ms",
        all_end_ms=_median(last[1:]),
        obs=64,
        episode=EPISODE,
    )


def finetuning(device: torch.device, steps: int) -> None:
    """Environment steps per second of the whole loop, and without updates."""
    for label, updates in (("finetune", 1.0), ("collect", 0.0)):
        method = _method(
            "residual",
            ["method.env_steps=100000000", f"method.base_steps={2 * LANES}", "method.burn_in=1",
             f"method.updates_per_step={updates}", "method.mix.demo=0", "method.mix.online=1"],
        )  # fmt: skip
        session = _session(method, DeviceWorld(LANES, JOINTS, device=device), device)
        while session.tuner.phase != "online":
            session.tuner.advance()
        session.tuner.advance()
        times = [_ms(session.tuner.advance, device) for _ in range(steps)]
        per_s = LANES / (statistics.mean(times) / 1e3)
        unit = "cpu_s" if device.type == "cpu" else "s"
        emit(
            f"device/{device.type}/{label}_env_steps_per_{unit}",
            round(per_s, 1),
            f"steps/{unit.replace('_', '-')}",
            lanes=LANES,
            updates_per_step=updates,
            batch=method.learner.batch,
        )


def _method(name: str, settings: list[str]) -> MethodConfig:
    return load_config("finetune", [f"method={name}", "out=.", *settings], FinetuneVerb).method


def _session(
    method: MethodConfig, world: DeviceWorld, device: torch.device, masked: bool | None = None
) -> TuningSession:
    base: SavedPolicy
    if method.map.kind == "direct":
        base = DirectPolicy(world.spec)
    elif INSTRUCTION in world.spec.obs:
        base = _vla(world.spec, "tokens" if method.map.kind == "tokens" else "flow")
    else:
        base = _base(world)
    base.to(device)  # type: ignore[attr-defined]
    session = build_session(method, base, world, seed=0, demos=None, device=device, masked=masked)
    root = session.seed_root
    session.tuner.collector.reset(world.reset(EpisodeSeeds(root)), first_seeds(root, world.num_envs))
    return session


def _base(world: DeviceWorld) -> GenerativePolicy:
    """A flow policy of 10 steps, whose weights are random."""
    torch.manual_seed(0)
    spec = world_spec(world.spec.action.dim)
    net = MlpDenoiserConfig(width=64, depth=2)
    config = GenerativeConfig(obs_steps=2, chunk=CHUNK, execute=8, net=net, image=ImageEncoderConfig())
    return GenerativePolicy(spec, _normalizer(spec), config, make_process(FlowConfig(steps=10))).eval()


def _vla(spec: EnvSpec, head: str) -> VlaPolicy:
    """A small vision-language-action policy with random weights, which encodes words as on a GPU."""
    torch.manual_seed(0)
    config = VlaConfig(width=32, layers=2, heads=4, kv_heads=2, head=head)
    policy = VlaPolicy(spec, _normalizer(spec), config, CHUNK, 8, WORDS.split()).eval()
    policy.backbone.cut_words = False
    return policy


def _normalizer(spec: EnvSpec) -> Normalizer:
    return Normalizer.fit({"state": torch.rand(64, *spec.obs["state"].shape) * 3.0 + 1.0})


def _ms(work: Callable[[], Tensor | object], device: torch.device) -> float:
    """Milliseconds of CPU time; on a GPU of wall time until it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        start_s = time.perf_counter()
        work()
        torch.cuda.synchronize(device)
        return 1e3 * (time.perf_counter() - start_s)
    start_s = time.process_time()
    work()
    return 1e3 * (time.process_time() - start_s)


def _median(times: list[float]) -> float:
    return round(statistics.median(times), 3)


if __name__ == "__main__":
    main()
