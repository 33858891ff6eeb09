"""Fine-tuning from two cameras and the robot's own state: success, steps and CPU time of each method.

    python benchmarks/pixels.py --only peg-insert-side --seeds 3 --runs runs/pixels
    python benchmarks/pixels.py --methods lanes+lanes_learned --env-steps 50000 --device cuda

One seed is a run of the verbs, as a user types them: collect 25 demonstrations (the same for all seeds),
train a flow policy with one image encoder a camera, fine-tune it. Finished verbs of --runs are not repeated,
and interrupted ones continue. Success is that of 50 episodes which no method has seen, the same for base and
fine-tuned policy. With --other-episodes the fine-tuned policy is measured on that many further episodes too.

Methods: steering, residual (encoders of the base, frozen); lanes: `residual_lanes` with 16 environments
instead of 32, and half its updates per step of all of them; lanes_learned: the same with a copy of the
encoders, which learns; lanes_longer: `lanes` with training episodes of twice the median demonstration instead
of 1.25 times; lanes_retrained: `lanes` with half of the steps, a new base that imitates the demonstrations
and the successes of this training (`record=success`), and `lanes` over it with the other half;
lanes_taught, steering_taught: half of the steps for a residual that sees the simulator's true state, then
episodes that the base begins and this teacher ends (`takeover=0.5`), one in 500 steps; the base learns on
from the demonstrations and these, and `lanes` or `steering` over it has a quarter of the steps. They need
--env-steps of 40,000 or more, and demonstrations with the true state: --runs of an older version has none.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from common import cpu_seconds, emit, own_folder, parser, verb

from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.stats import SuccessRate
from sim.registry import make_env

LANES = {
    "num_envs": 16, "num_workers": 4, "method.base_steps": 3200, "method.updates_per_step": 4,
}  # fmt: skip
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "steering": ("steering", {}),
    "residual": ("residual", {}),
    "lanes": ("residual_lanes", LANES),
    "lanes_learned": ("residual_lanes", LANES | {"method.encoder": "learned"}),
    "lanes_longer": ("residual_lanes", LANES | {"method.episode_limit_factor": 2.0}),
    "lanes_retrained": ("residual_lanes", LANES),
    "lanes_taught": ("residual_lanes", LANES),
    "steering_taught": ("steering", {}),
}  # name here: method of the verb, its settings
COST_FILE = "cpu_s.json"
COLLECTORS = 5  # environments of a collection
LEAST_TAUGHT = 40_000  # steps of a run with a teacher; its last quarter begins with the base alone
LONGEST = 200  # steps of an episode that a teacher ends
OTHER_EPISODES = 7  # `seed=` of the evaluation on further episodes; that of all others is 0


@dataclass(frozen=True)
class PixelTask:
    """An environment with two cameras, and the length of its runs."""

    env: str
    noise: float  # of the demonstrations
    true_state: bool  # whether the environment has it, beside what the robot measures
    updates: int = 3000
    env_steps: int = 12_000


TASKS = {
    "peg-insert-side": PixelTask(
        "metaworld/peg-insert-side-v3:cameras=corner3+gripperPOV,state=robot", noise=0.1, true_state=True
    ),
    "lift": PixelTask("arm/lift:cameras=view+front,state=robot", noise=0.3, true_state=False),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=list(TASKS), help="one task; all by default")
    options.add_argument(
        "--methods", default="steering+residual", help=f"of {', '.join(METHODS)}; joined by +"
    )
    options.add_argument("--seeds", type=int, default=3, help="number of seeds")
    options.add_argument("--first-seed", type=int, default=0, help="the first of them")
    options.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="of training and fine-tuning"
    )
    options.add_argument("--env-steps", type=int, help="of each fine-tuning, if not the task's own")
    options.add_argument("--updates", type=int, help="of the training of each base, if not the task's own")
    options.add_argument(
        "--other-episodes", type=int, default=0, help="number of further episodes for each fine-tuned policy"
    )
    options.add_argument("--runs", type=Path, help="folder of data and runs; an interrupted one continues")
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = own_folder(args.runs) if args.runs else Path(temporary)
        for name in [args.only] if args.only else ["peg-insert-side"] if args.quick else list(TASKS):
            task = TASKS[name]
            task = replace(
                task, env_steps=args.env_steps or task.env_steps, updates=args.updates or task.updates
            )
            methods = args.methods.split("+") if args.methods else []
            check(name, task, methods, quick=args.quick)
            emit(f"pixels/{name}/render_ms", round(render_ms(task.env), 2), "cpu-ms/env-step", cameras=2)
            for seed in range(args.first_seed, args.first_seed + (1 if args.quick else args.seeds)):
                prepare(task, seed, folder / name, args.device, quick=args.quick)
                for method in methods:
                    finetune(name, task, seed, method, folder / name, args.device, quick=args.quick)
                    if args.other_episodes:
                        evaluate(name, task, seed, method, folder / name, args.other_episodes)


def check(name: str, task: PixelTask, methods: list[str], *, quick: bool) -> None:
    """Exit before anything runs if the task cannot be learned by one of the methods."""
    if unknown := set(methods) - set(METHODS):
        raise SystemExit(f"Unknown in --methods: {', '.join(sorted(unknown))}. Known: {', '.join(METHODS)}.")
    if not any(method.endswith("_taught") for method in methods):
        return
    if not task.true_state:
        raise SystemExit(f"{name} has no true state for the teacher of the methods *_taught; give --only.")
    if task.env_steps < LEAST_TAUGHT and not quick:
        raise SystemExit(f"The methods *_taught need --env-steps={LEAST_TAUGHT} or more.")


def render_ms(env_name: str, steps: int = 60) -> float:
    """CPU time of both pictures: that of a step with cameras, less that of a step without [ms]."""
    times = []
    for name in (env_name, env_name.partition(":")[0]):
        with closing(make_env(name, 1)) as env:
            env.reset(EpisodeSeeds(("pixels", 0)))
            action = torch.zeros(1, env.spec.action.dim)
            env.step(action)
            start_s = cpu_seconds()
            for _ in range(steps):
                env.step(action)
            times.append(cpu_seconds() - start_s)
    return float(1e3 * (times[0] - times[1]) / steps)


def prepare(task: PixelTask, seed: int, folder: Path, device: str, *, quick: bool) -> None:
    """Demonstrations, which all seeds share, and the base policy of this seed."""
    demos = folder / "demos"
    measured(
        "collect", demos, env=task.env, episodes=2 if quick else 25, noise=task.noise, num_envs=COLLECTORS,
        privileged=task.true_state,
    )  # fmt: skip
    train(task, seed, demos, folder / f"base-{seed}", device, quick=quick)


def train(
    task: PixelTask, seed: int, demos: Path, out: Path, device: str, *, quick: bool, init: Path | None = None
) -> None:
    """Train a base policy on these demonstrations. init: base that learns on, with half of the updates."""
    updates = task.updates if init is None else task.updates // 2
    network = ["image.widths=[16,32,64]"] if init is None else [f"init={init}"]
    measured(
        "train", out, *network, "threads=1", data=demos, steps=20 if quick else updates, batch_size=64,
        seed=seed, device=device, resume=True,
    )  # fmt: skip


def finetune(
    name: str, task: PixelTask, seed: int, method: str, folder: Path, device: str, *, quick: bool
) -> None:
    """Fine-tune the base of this seed and print the figures."""
    base, demos, out = folder / f"base-{seed}", folder / "demos", folder / f"{method}-{seed}"
    earlier, collected = list[Path](), 0  # runs before the last one, steps of collections
    if method == "lanes_retrained":
        first, merged, retrained = (folder / f"{method}-{seed}-{part}" for part in ("first", "demos", "base"))
        task = replace(task, env_steps=task.env_steps // 2)
        kept = "all" if quick else "success"
        improve(task, seed, method, base, demos, first, device, quick=quick, record=kept)
        merge(demos, first / "episodes", merged)
        train(task, seed, merged, retrained, device, quick=quick)
        base, demos, earlier = retrained, merged, [first, retrained]
    elif method.endswith("_taught"):  # the methods share the taught base
        teacher, taught, merged, pupil = (
            folder / f"taught-{seed}-{part}" for part in ("teacher", "episodes", "demos", "base")
        )
        teach(task, seed, base, demos, teacher, taught, device, quick=quick)
        merge(demos, taught, merged)
        train(task, seed, merged, pupil, device, quick=quick, init=base)
        task = replace(task, env_steps=task.env_steps // 4)
        base, demos, earlier = pupil, merged, [teacher, taught, pupil]
        collected = collected_steps(taught, seed + 1)
    improve(task, seed, method, base, demos, out, device, quick=quick)
    report(name, task, method, seed, out, folder / f"base-{seed}", device, earlier, collected)


def teach(
    task: PixelTask, seed: int, base: Path, demos: Path, teacher: Path, out: Path, device: str, *, quick: bool
) -> None:
    """Train a teacher that sees the true state, and record episodes that the base begins and it ends."""
    half, sees = replace(task, env_steps=task.env_steps // 2), {"method.privileged": True}
    improve(half, seed, "lanes", base, demos, teacher, device, quick=quick, **sees)
    measured(
        "collect", out, policy=teacher, takeover=0.5, takeover_from=base, noise=0.0,
        episodes=2 if quick else task.env_steps // 500, num_envs=COLLECTORS, seed=seed + 1,
        max_episode_steps=LONGEST, keep="all" if quick else "success", privileged=True,
    )  # fmt: skip


def merge(demos: Path, more: Path, out: Path) -> None:
    """Merge two datasets unless it is done; a merge is complete or absent."""
    if not out.exists():
        verb("data merge", f"sources=[{demos},{more}]", out=out)


def improve(
    task: PixelTask, seed: int, method: str, base: Path, demos: Path, out: Path, device: str, *,
    quick: bool, **settings: Any,
) -> None:  # fmt: skip
    """Run `finetune` with the settings of this method."""
    verb_method, of_method = METHODS[method]
    settings |= of_method
    if verb_method != "steering":
        settings = settings | {"demos": demos}
    if quick:
        settings = settings | {"method.base_steps": 80, "max_episode_steps": 150}
    measured(
        "finetune", out, base=base, method=verb_method, env_steps=120 if quick else task.env_steps, seed=seed,
        eval_every=0, eval_episodes=2 if quick else 20, final_episodes=2 if quick else 50, device=device,
        resume=True, **settings,
    )  # fmt: skip


def evaluate(name: str, task: PixelTask, seed: int, method: str, folder: Path, episodes: int) -> None:
    """Print the success of the fine-tuned policy of this seed on further episodes."""
    run = folder / f"{method}-{seed}"
    out = run / f"other-{episodes}.json"
    if not out.exists():
        verb("evaluate", policy=run, episodes=episodes, seed=OTHER_EPISODES, num_envs=10, out=out)
    rate = read_json(out)["policy"]["rate"]
    success = SuccessRate(rate["k"], rate["n"])
    emit(
        f"pixels/{name}/{method}/other_episodes_success", success.rate, "fraction",
        seed=seed, base_updates=task.updates, **success.to_json(),
    )  # fmt: skip


def measured(name: str, out: Path, *words: str, **settings: Any) -> None:
    """Run a verb unless it has finished, and keep its CPU time in its folder: that of this process, and of no
    earlier interrupted one.
    """
    note = out / COST_FILE
    if note.exists():
        return
    start_s = cpu_seconds()
    if settings.get("resume") and not (out / "run.json").exists():
        settings = settings | {"resume": False}
    verb(name, *words, out=out, **settings)
    write_json(note, {"cpu_s": cpu_seconds() - start_s})


def report(
    name: str,
    task: PixelTask,
    method: str,
    seed: int,
    out: Path,
    base: Path,
    device: str,
    earlier: list[Path],
    collected: int,
) -> None:
    """Print success beside that of the base, and steps and CPU time.

    earlier: runs and collections that came before `out`, whose CPU time, final evaluations included, is
    added, and the steps of runs. collected: steps of collections.
    """
    results = [
        read_json(each / "results.json") for each in (*earlier, out) if (each / "results.json").exists()
    ]
    after, before = (
        SuccessRate(rate["k"], rate["n"])
        for rate in (results[-1]["policy"]["rate"], results[0]["base"]["rate"])
    )
    own = sum(read_json(each / COST_FILE)["cpu_s"] for each in (*earlier, out))
    trained = read_json(base / COST_FILE)["cpu_s"]
    prefix = f"pixels/{name}/{method}"
    given = {"seed": seed, "device": device, "base_updates": task.updates}
    if earlier:
        given |= {"retrained_base": results[-1]["base"]["rate"]["success"]}
    emit(f"{prefix}/success", after.rate, "fraction", **given, base=before.rate, **after.to_json())
    steps = collected + sum(each["env_steps"] for each in results)
    emit(f"{prefix}/env_steps", steps, "steps", **given)
    emit(f"{prefix}/cpu_s", round(own, 1), "cpu-s", **given, base_cpu_s=round(trained, 1))


def collected_steps(folder: Path, seed: int) -> int:
    """Environment steps of a collection without interruptions, at most: a failed or an unfinished episode
    counts LONGEST.
    """
    store, seeds = EpisodeStore(folder), EpisodeSeeds(("collect", seed))
    missing = {episode.meta.seed for episode in store}
    while missing:
        missing.discard(next(seeds))
    lost = seeds.count - len(store) + COLLECTORS
    return sum(episode.frames for episode in store) + LONGEST * lost


if __name__ == "__main__":
    main()
