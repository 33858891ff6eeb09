"""An arm with a hand, told what to lift: two action experts, for arm and hand, beside a single one.

    python benchmarks/vla_hand.py --folder runs/hand
    python benchmarks/vla_hand.py --folder runs/hand --kinds two_experts --seeds 0

Demonstrations of `arm_hand/pick` (a red cube and a blue ball; 3 numbers of an action move the arm, 16 the
joints of the hand), with two cameras and the robot's own state. From them, for each of --seeds, a policy with
policy.experts = [arm, hand] and one with a single expert of the same width, as many updates of the same
batches each. All evaluations begin every chunk from zero noise and are of episodes that are not used in
training, the same for every policy, as many for each object. Names: vla/hand/<two_experts or
one_expert>/success, .../success/<object>, .../new_wording_success (wordings that no demonstration has),
.../other_instruction_success (told the other object than the one that is scored). k, n and the 95 % Wilson
interval are over all seeds; `seeds` is the success of each, `train_cpu_s` the CPU time of each training that
this call made. Finished trainings and evaluations in --folder are kept.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import into_log, own_folder, parser, verb
from kept_runs import measured, outcomes, report, trained

from sim.tasks.arm_hand.words import PICK

ENV = "arm_hand/pick:cameras=view+front,image_size=64,state=robot"
RECIPE = (
    *("policy=vla", "policy.film=true", "policy.spatial=1.0", "chunk=16", "execute=8", "lr=1e-3"),
    *("ema_max=0.99", "threads=1"),
)
LANES = "num_envs=20"  # of the evaluations
ARM, HAND = list(range(3)), list(range(3, 19))  # dimensions of the action
KINDS = {
    "two_experts": f"policy.experts={[ARM, HAND]}".replace(" ", ""),
    "one_expert": "policy.experts=[]",
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--demos", type=int, default=300, help="demonstrations")
    options.add_argument("--steps", type=int, default=4000, help="updates of each training")
    options.add_argument("--batch-size", type=int, default=16, help="windows per update")
    options.add_argument("--episodes", type=int, default=100, help="evaluation episodes of each policy")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings")
    options.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="policies")
    options.add_argument("--folder", type=Path, default=Path("runs/hand"), help="folder of the runs")
    args = options.parse_args()
    demos, steps, size, episodes, more = args.demos, args.steps, args.batch_size, args.episodes, list[str]()
    lanes = 10
    if args.quick:
        demos, steps, size, episodes, lanes, more = 2, 2, 4, 4, 2, ["max_episode_steps=10"]
        args.seeds, args.kinds = args.seeds[:1], args.kinds[:1]
    home = own_folder(args.folder)
    folder, data = home / f"{demos}_demos_{steps}_updates_of_{size}", home / f"data_{demos}"
    folder.mkdir(parents=True, exist_ok=True)
    spent = {"updates": steps, "rows": size, "demonstrations": demos}
    with into_log(log := folder / "log.txt"):
        verb("collect", f"env={ENV}", f"out={data}", f"episodes={demos}", "noise=0.2", f"num_envs={lanes}")
    for kind in args.kinds:
        runs = {seed: folder / f"{kind}_seed{seed}" for seed in args.seeds}
        given = [f"data={data}", f"steps={steps}", f"batch_size={size}", *RECIPE, KINDS[kind]]
        cpu_s = [trained(run, log, *given, f"seed={seed}") for seed, run in runs.items()]
        line = {**spent, "train_cpu_s": cpu_s}
        own = [measured(run, run / "own", log, episodes, LANES, *more) for run in runs.values()]
        report(f"vla/hand/{kind}/success", [outcomes(each) for each in own], line)
        for number, name in enumerate(PICK.names):
            found = [outcomes(each, ENV, number) for each in own]
            report(f"vla/hand/{kind}/success/{name}", found, line)
        words = (LANES, *more, "wordings=new")
        new = [measured(run, run / "new", log, episodes, *words) for run in runs.values()]
        report(f"vla/hand/{kind}/new_wording_success", [outcomes(each) for each in new], line)
        if args.quick:  # two more evaluations of each policy would take it over a CPU-minute
            continue
        others = [told_the_other(run, log, episodes // 2) for run in runs.values()]
        report(f"vla/hand/{kind}/other_instruction_success", others, line)


def told_the_other(run: Path, log: Path, episodes: int) -> list[bool]:
    """Successes in `episodes` of each object, told the other one and scored by its own."""
    found: list[bool] = []
    for name, other in zip(PICK.names, reversed(PICK.names), strict=True):
        words = [LANES, f"tasks=[{name}]", f"instruction={PICK.training[other][0]}"]
        found += outcomes(measured(run, run / f"other_{name}", log, episodes, *words))
    return found


if __name__ == "__main__":
    main()
