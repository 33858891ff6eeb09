"""Vision-language-action policy on suites of MetaWorld tasks: success, and what words are worth.

    python benchmarks/vla.py --suite mt6 --episodes-per-task 10

Collects, trains and evaluates by the verbs. Finished parts are kept in --folder. Lines, for <suite> = mt6 or
pair (a faucet to open or close in one scene):

    vla/<suite>/success                    told the task in a wording of training
    vla/<suite>/new_wording_success        told the task in wordings that no demonstration has
    vla/<suite>/other_instruction_success  told the opposite task: success in the task that was not named
    vla/<suite>/single_task_success        mean of flow policies of one task each, from the same pictures

--only measures some of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import emit, own_folder, parser, verb

from robo_rl.eval.stats import SuccessRate
from sim.adapters.metaworld_instructions import WORDINGS, tasks_of

NAMES = {"mt6": "mt6", "pair": "faucet-open-v3+faucet-close-v3"}
PARTS = ("success", "new_wording_success", "other_instruction_success", "single_task_success")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--suite", choices=sorted(NAMES), default="mt6", help="tasks")
    options.add_argument("--demos", type=int, default=15, help="demonstrations of each task")
    options.add_argument("--steps", type=int, default=6000, help="gradient steps of each policy")
    options.add_argument("--batch-size", type=int, default=32, help="windows per step")
    options.add_argument("--episodes-per-task", type=int, default=20, help="evaluation episodes of each task")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="figures to measure")
    options.add_argument("--folder", type=Path, default=Path("runs/vla"), help="data and runs are kept here")
    args = options.parse_args()
    if args.quick:
        args.suite, args.demos, args.steps, args.batch_size, args.episodes_per_task = "pair", 1, 2, 4, 1
        args.only = [part for part in args.only if part != "single_task_success"]
    Measurement(args, own_folder(args.folder)).run()


class Measurement:
    """Data, policies and figures of one suite."""

    def __init__(self, args: Any, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.tasks = tasks_of(NAMES[args.suite])

    def run(self) -> None:
        data = self.collect("+".join(self.tasks), self.folder / f"data_{self.args.suite}")
        policy = self.train(data, self.folder / f"vla_{self.args.suite}", policy="vla", lr=1e-3, ema_max=0.99)
        everything = {
            "success": lambda: self.success(policy),
            "new_wording_success": lambda: self.success(policy, wordings="new"),
            "other_instruction_success": lambda: self.other_instruction(policy),
            "single_task_success": self.single_tasks,
        }
        for part in self.args.only:
            self.say(part, everything[part]())

    def collect(self, suite: str, out: Path) -> Path:
        """Demonstrations of each task, in a dataset that is finished where it exists."""
        count = self.args.demos * len(tasks_of(suite))
        verb("collect", suite=f"metaworld/{suite}", out=out, episodes=count, noise=0.2, num_envs=6)
        return out

    def train(self, data: Path, out: Path, **settings: Any) -> Path:
        """Policy of the data, trained unless it exists."""
        if not (out / "policy" / "policy.json").exists():
            recipe = {"steps": self.args.steps, "batch_size": self.args.batch_size}
            recipe |= {"chunk": 16, "execute": 8, "threads": 1}
            verb("train", data=data, out=out, overwrite=True, **recipe, **settings)
        return out

    def success(self, policy: Path, **settings: Any) -> list[bool]:
        """Outcomes of the policy; settings: of the evaluation."""
        tasks = len(settings["tasks"].split(",")) if "tasks" in settings else len(self.tasks)
        file = self.folder / "evaluation.json"
        count = {"episodes": tasks * self.args.episodes_per_task, "num_envs": 6}
        verb("evaluate", policy=policy, out=file, **count, **settings)
        return list(json.loads(file.read_text())["policy"]["success"])

    def other_instruction(self, policy: Path) -> list[bool]:
        """Outcomes in each task, told to do its opposite: tasks 2 i and 2 i + 1 are opposites."""
        outcomes: list[bool] = []
        for i, task in enumerate(self.tasks):
            told = json.dumps(WORDINGS[self.tasks[i ^ 1]][0])
            outcomes += self.success(policy, tasks=f"[{task}]", instruction=told)
        return outcomes

    def single_tasks(self) -> list[bool]:
        """Outcomes of flow policies that learn one task each, from as many demonstrations of it."""
        outcomes: list[bool] = []
        for task in self.tasks:
            data = self.collect(f"{task}+", self.folder / f"data_{task}")
            flow = {"process.prediction": "preconditioned", "net": "transformer"}
            policy = self.train(data, self.folder / f"flow_{task}", policy="generative", **flow)
            outcomes += self.success(policy, tasks=f"[{task}]")
        return outcomes

    def say(self, name: str, outcomes: list[bool]) -> None:
        rate, args = SuccessRate.of(outcomes), self.args
        more = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson()), "demos_per_task": args.demos}
        more |= {"train_steps": args.steps, "batch_size": args.batch_size}
        emit(f"vla/{args.suite}/{name}", rate.rate, "fraction", **more)


if __name__ == "__main__":
    main()
