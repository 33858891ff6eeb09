"""Vision-language-action policy on suites of MetaWorld tasks: success, and what words are worth.

    python benchmarks/vla.py --suite pair --folder runs/vla
    python benchmarks/vla.py --suite mt6 --folder runs/vla

Collects, trains and evaluates by the verbs. --folder keeps datasets, runs and evaluations: the same command
continues where it was stopped, and measures nothing twice. Lines, for <suite> = mt6 or pair (a faucet to open
or close in one scene), each with k, n and the 95 % Wilson interval:

    vla/<suite>/success                    told the task in a wording of training; .../success/<task> alike
    vla/<suite>/new_wording_success        told the task in wordings that no demonstration has
    vla/<suite>/other_instruction_success  told the opposite task: success in the task that was not named
    vla/<suite>/single_task_success        flow policies of one task each, from the same pictures;
                                           .../single_task_without_noise_success from zero noise
    vla/<suite>/spatial_success            a policy that also learns where to act, from the same data;
                                           .../spatial_new_wording_success and
                                           .../spatial_other_instruction_success from zero noise
    vla/<suite>/tokens_success              a policy whose actions are tokens, from the same data
    vla/<suite>/tokens_without_noise_success  the same from zero noise: the median of each token
    vla/<suite>/tokens_after_rl_success     that policy after method=ppo_tokens in --rl-task alone; medians of
                                            its and its base's tokens in the same, new episodes
    vla/<suite>/without_noise_success      the first policy from zero noise, on the same episodes
    vla/<suite>/spatial_without_noise_success  the policy of spatial_success from zero noise
    vla/<suite>/film_success               that policy with policy.film, and
    vla/<suite>/experts_success            with an expert of its own for the gripper; from zero noise alike
    vla/<suite>/after_rl_success           the policy after --rl, on the episodes of vla/<suite>/success;
                                           .../base and .../base_without_noise are those of its bases

--only measures some of them; --single-tasks names the tasks of single_task_success. --rl is a method of
`robo-rl finetune`, run once for each of --rl-seeds, and --rl-set more of its settings; k and n are over all
seeds. The line has the success of each seed, that of the base as it is deployed and without noise, and the
change of each task, all on the same episodes. --rl teacher: a pupil, a new VLA or its base (--pupil), learns
from episodes of a teacher that sees the simulator's true state (see `vla_teacher`), by --set; --taught-steps
teacher: only from the steps in which the teacher acted, and not from those of the base before them.
--rounds 2 adds as many episodes that the pupil of the first round begins; the pupil learns on from all, with
the second number of --pupil-steps as its updates. With --by-failures 20, those of the third round and later
ones go to tasks in proportion to the failures of the pupil before in 20 episodes of each, which count.

--bases names policies that were trained with different seeds (--name ... --set seed=...): success with and
without noise is then over all of them, and after_rl_success has a base for each of --rl-seeds.
--checkpoint measures a run that is not finished. --eval-seed 8 measures on other episodes, for a policy whose
settings were chosen on those of seed 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import emit, own_folder, parser, verb
from vla_teacher import Lesson, add_options, lesson_of, updates_of

from policies.vocabulary import words_in
from robo_rl.eval.stats import SuccessRate
from sim.adapters.metaworld_instructions import TRAINING, WORDINGS, tasks_of
from sim.registry import task_in

NAMES = {"mt6": "mt6", "pair": "faucet-open-v3+faucet-close-v3"}
RECIPE = {"chunk": 16, "execute": 8, "threads": 1, "checkpoint_every": 200, "keep_checkpoints": 20}
VLA = {"policy": "vla", "lr": 1e-3, "ema_max": 0.99}
SPATIAL = {"policy.spatial": "1.0"}
TOKENS = {"policy.head": "tokens"}
KINDS = {  # part of a name -> settings of the training
    "": {},
    "spatial_": SPATIAL,
    "film_": SPATIAL | {"policy.film": "true"},
    "experts_": SPATIAL | {"policy.experts": "[[0,1,2],[3]]"},
    "tokens_": TOKENS,
}
FLOW = {"policy": "generative", "process.prediction": "preconditioned", "net": "transformer", "ema_max": 0.99}
TOLD = ("new_wording_success", "other_instruction_success")
PARTS = (
    "success",
    *TOLD,
    "without_noise_success",
    *(f"{kind}{part}" for kind in KINDS if kind for part in ("success", "without_noise_success")),
    *(f"spatial_{part}" for part in TOLD),
    "single_task_success",
    "single_task_without_noise_success",
    "tokens_after_rl_success",
    "after_rl_success",
)
PPO_TOKENS = {"method": "ppo_tokens", "num_envs": 16, "checkpoint_every": 20000, "final_episodes": 10}
FINAL_SEED = 1  # episodes of tokens_after_rl_success; evaluations during training use 0
SELECTION = 5  # episodes of each task in an evaluation during RL
ByTask = dict[str, list[bool]]  # outcomes of the episodes of each task


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--suite", choices=sorted(NAMES), default="mt6", help="tasks")
    options.add_argument("--demos", type=int, default=15, help="demonstrations of each task")
    options.add_argument("--steps", type=int, default=2000, help="updates of each policy")
    options.add_argument("--batch-size", type=int, default=16, help="windows per update")
    options.add_argument("--episodes-per-task", type=int, default=20, help="evaluation episodes of each task")
    options.add_argument("--eval-seed", type=int, default=0, help="seed of these episodes")
    options.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="lines to measure")
    options.add_argument("--single-tasks", nargs="+", help="tasks of single_task_success; none: all")
    options.add_argument("--set", nargs="*", default=[], help="more settings of training, key=value")
    options.add_argument("--name", default="vla", help="folder of the policy, in --folder")
    options.add_argument("--rl", default="steering", help="method of after_rl_success")
    options.add_argument("--rl-seeds", nargs="+", type=int, default=[0, 1, 2], help="its seeds")
    options.add_argument("--bases", nargs="+", help="--name of several trainings, to measure together")
    options.add_argument("--rl-steps", type=int, default=50000, help="its environment steps")
    options.add_argument("--rl-task", default="window-open-v3", help="task of tokens_after_rl_success")
    add_options(options)
    options.add_argument("--rl-set", nargs="*", default=[], help="more of its settings, key=value")
    options.add_argument("--workers", type=int, default=0, help="simulator processes of each verb")
    options.add_argument("--device", default="cpu", help="of fine-tuning: cpu or cuda")
    options.add_argument("--checkpoint", type=int, help="measure this update instead of the end of training")
    options.add_argument("--folder", type=Path, default=Path("runs/vla"), help="data and runs are kept here")
    args = options.parse_args()
    args.most_steps = None
    if args.quick:
        args.suite, args.demos, args.steps, args.batch_size, args.episodes_per_task = "pair", 1, 2, 4, 1
        args.only = [part for part in args.only if part in PARTS[:3]]
        args.most_steps = 10  # of an episode
    Measurement(args, own_folder(args.folder)).run()


class Measurement:
    """Data, policies and figures of one suite."""

    def __init__(self, args: Any, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.tasks = tasks_of(NAMES[args.suite])
        self.more: dict[str, Any] = {}  # further fields of a line

    @property
    def given(self) -> dict[str, str]:
        """Settings of --set."""
        return dict(each.split("=", 1) for each in self.args.set)

    def run(self) -> None:
        everything: dict[str, Callable[[], ByTask]] = {
            "new_wording_success": self.new_wordings,
            "other_instruction_success": self.other_instruction,
            "spatial_new_wording_success": lambda: self.new_wordings("spatial_", noise=False),
            "spatial_other_instruction_success": lambda: self.other_instruction("spatial_", noise=False),
            "single_task_success": self.single_tasks,
            "single_task_without_noise_success": lambda: self.single_tasks(noise=False),
            "tokens_after_rl_success": self.tokens_after_rl,
            "after_rl_success": self.after_rl,
        }
        for kind in KINDS:
            everything[f"{kind}success"] = partial(self.of_trainings, kind)
            everything[f"{kind}without_noise_success"] = partial(self.of_trainings, kind, noise=False)
        for part in self.args.only:
            self.more = {}
            outcomes = everything[part]()
            self.say(part, joined(outcomes), outcomes)
            for task, of_task in outcomes.items():
                self.say(f"{part}/{task}", of_task, {task: of_task})

    def vla(self, kind: str = "") -> str:
        """The policy of the suite, as `evaluate` takes it."""
        run, step = self.run_folder(self.args.name, kind), self.args.checkpoint
        if step is None:
            data = self.collect(NAMES[self.args.suite], self.folder / f"data_{self.args.suite}")
            self.train(data, run, VLA | self.given | KINDS[kind])
        return str(run) if step is None else f"{run}@{step}"

    def run_folder(self, name: str, kind: str) -> Path:
        """Folder of a training."""
        return self.folder / f"{name}_{kind}{self.args.suite}"

    def collect(self, suite: str, out: Path) -> Path:
        """Demonstrations of each task, in a dataset that is finished where it exists; with the true state if
        a teacher needs it.
        """
        count = self.args.demos * len(tasks_of(suite))
        verb(
            "collect",
            suite=f"metaworld/{suite}",
            out=out,
            episodes=count,
            noise=0.2,
            num_envs=6,
            num_workers=self.args.workers,
            privileged=self.args.rl == "teacher",
        )
        return out

    def train(self, data: Path | str, out: Path, settings: Mapping[str, Any]) -> None:
        """Policy of the data; a training that was stopped continues."""
        if not (out / "policy" / "policy.json").exists():
            recipe = RECIPE | {"steps": self.args.steps, "batch_size": self.args.batch_size}
            verb("train", data=data, out=out, resume=(out / "run.json").exists(), **recipe | settings)

    def success(self, policy: str, name: str, noise: bool = True, **settings: Any) -> ByTask:
        """Outcomes of a policy, kept in a file of this name. noise: False begins every chunk from zero noise.
        settings: more of the evaluation.
        """
        tasks = settings.pop("only", self.tasks)
        if not noise:
            name, settings["noise"] = f"{name}_without_noise", 0.0
        home = Path(policy.partition("@")[0])
        if seed := self.args.eval_seed:
            settings.setdefault("seed", seed)
            name = f"{name}_seed{seed}"
        file = home / f"{name}{'_at_' + policy.partition('@')[2] if '@' in policy else ''}.json"
        if not file.exists():
            lanes = min(12, len(tasks) * self.args.episodes_per_task)
            count = {"episodes": len(tasks) * self.args.episodes_per_task, "num_envs": lanes}
            if len(tasks) < len(self.tasks):
                settings["tasks"] = f"[{','.join(tasks)}]"
            if self.args.most_steps:
                settings["max_episode_steps"] = self.args.most_steps
            verb("evaluate", policy=policy, out=file, num_workers=self.args.workers, **count, **settings)
        report = json.loads(file.read_text())
        outcomes: ByTask = {task: [] for task in tasks}
        known, env = tasks_of(report["env"].partition("/")[2]), report["env"]
        for seed, success in zip(report["policy"]["seeds"], report["policy"]["success"], strict=True):
            outcomes[known[task_in(env, seed)]].append(success)
        return outcomes

    def of_trainings(self, kind: str, noise: bool = True) -> ByTask:
        """Outcomes of the trainings of a kind in their tasks."""
        return self.over_trainings(kind, lambda each: self.success(each, "success", noise))

    def over_trainings(self, kind: str, measure: Callable[[str], ByTask]) -> ByTask:
        """Outcomes of one training of a kind, or of all --bases; the line then has the success of each."""
        each = [
            measure(policy) for policy in ([self.vla(kind)] if self.args.bases is None else self.bases(kind))
        ]
        if self.args.bases is not None:
            self.more |= {"seeds": [fmean(joined(outcomes)) for outcomes in each]}
        return self.pooled(each)

    def new_wordings(self, kind: str = "", noise: bool = True) -> ByTask:
        """Outcomes in wordings that no demonstration has; the line says how many of their words none has."""
        seen = {word for task in self.tasks for text in WORDINGS[task][:TRAINING] for word in words_in(text)}
        told = {word for task in self.tasks for text in WORDINGS[task][TRAINING:] for word in words_in(text)}
        self.more = {"words": len(told), "unseen_words": sorted(told - seen)}
        return self.over_trainings(
            kind, lambda each: self.success(each, "new_wording", noise, wordings="new")
        )

    def other_instruction(self, kind: str = "", noise: bool = True) -> ByTask:
        """Outcomes in each task, told to do its opposite: tasks 2 i and 2 i + 1 are opposites."""

        def measure(policy: str) -> ByTask:
            outcomes = ByTask()
            for i, task in enumerate(self.tasks):
                told = WORDINGS[self.tasks[i ^ 1]][0]
                outcomes |= self.success(policy, f"other_than_{task}", noise, only=[task], instruction=told)
            return outcomes

        return self.over_trainings(kind, measure)

    def single_tasks(self, noise: bool = True) -> ByTask:
        """Outcomes of flow policies that learn one task each, from as many demonstrations of it."""
        outcomes = ByTask()
        for task in self.args.single_tasks or self.tasks:
            data = self.collect(f"{task}+", self.folder / f"data_{task}")
            self.train(data, self.folder / f"flow_{task}", FLOW)
            outcomes |= self.success(str(self.folder / f"flow_{task}"), "success", noise, only=[task])
        return outcomes

    def tokens_after_rl(self) -> ByTask:
        """Outcomes of all seeds of PPO on tokens in one task; the line has each seed's and the base's."""
        base, args, task = self.vla("tokens_"), self.args, self.args.rl_task
        where = {"only": [task], "noise": False, "seed": FINAL_SEED, "env": f"metaworld/{task}+"}
        before = self.success(base, f"success_in_{task}", **where)[task]
        outcomes, seeds, spent = list[bool](), list[float](), list[int]()
        for seed in args.rl_seeds:
            out = self.folder / f"{Path(base).name}_ppo_tokens_{task}" / f"seed{seed}"
            if not (out / "policy" / "policy.json").exists():
                given = PPO_TOKENS | {"base": base, "out": out, "seed": seed, "env_steps": args.rl_steps}
                given |= {"env": where["env"], "eval_every": 0, "eval_episodes": 40}
                verb("finetune", *args.rl_set, **given, resume=(out / "run.json").exists())
            after = self.success(str(out), "success", **where)[task]
            outcomes, seeds = outcomes + after, [*seeds, fmean(after)]
            spent.append(json.loads((out / "results.json").read_text())["env_steps"])
        self.more = {"base": fmean(before), "base_n": len(before), "seeds": seeds, "env_steps": spent}
        return {task: outcomes}

    def after_rl(self) -> ByTask:
        """Outcomes of all seeds of the method, on the episodes of their bases."""
        args = self.args
        bases = [self.vla()] * len(args.rl_seeds) if args.bases is None else self.bases()
        if len(bases) != len(args.rl_seeds):
            raise SystemExit(f"--bases names {len(bases)} policies for {len(args.rl_seeds)} of --rl-seeds.")
        runs = list(zip(bases, args.rl_seeds, strict=True))
        before = [self.success(base, "success") for base, _ in runs]
        still = [self.success(base, "success", noise=False) for base, _ in runs]
        after = [self.tuned(base, seed) for base, seed in runs]
        start, still_start, outcomes = map(self.pooled, (before, still, after))
        self.say("after_rl_success/base", joined(start), start)
        self.say("after_rl_success/base_without_noise", joined(still_start), still_start)
        change = {task: fmean(outcomes[task]) - fmean(start[task]) for task in self.tasks}
        costs = [self.costs(base, seed) for base, seed in runs]
        self.more = {
            "method": args.rl,
            "settings": args.rl_set,
            "env_steps": [cost["env_steps"] for cost in costs],  # all, less where time ended it
            "selection_env_steps": [cost["selection"] for cost in costs],  # of these
            "train_cpu_s": [round(cost["train_cpu_s"]) for cost in costs],
            "seeds": [fmean(joined(of_seed)) for of_seed in after],
            "base": fmean(joined(start)),
            "base_of_seeds": [fmean(joined(of_seed)) for of_seed in before],
            "base_without_noise": [fmean(joined(of_seed)) for of_seed in still],
            "change": change,
            "least_change_of_a_task": min(change.values()),
        }
        if args.rl == "teacher":
            self.more |= {
                "pupil": args.pupil,
                "pupil_updates": [updates_of(args, k) for k in range(args.rounds)],
                "rounds": args.rounds,
                "by_failures": args.by_failures,
                "taught_steps": args.taught_steps,
            }
        return outcomes

    def bases(self, kind: str = "") -> list[str]:
        """Policies of --bases, of a kind. Ends the program if one is not trained."""
        folders = [self.run_folder(name, kind) for name in self.args.bases]
        if missing := [folder.name for folder in folders if not (folder / "policy").exists()]:
            raise SystemExit(f"{self.folder} has no {missing}. Train them first: --name ... --set seed=...")
        return [str(folder) for folder in folders]

    def pooled(self, of_seeds: Sequence[ByTask]) -> ByTask:
        """Outcomes of each task, of all seeds together."""
        return {task: [each for of_seed in of_seeds for each in of_seed[task]] for task in self.tasks}

    def run_of(self, policy: str, seed: int) -> Path:
        """Folder of one seed of the method."""
        return self.folder / f"{Path(policy).name.replace('@', '_at_')}_{self.args.rl}" / f"seed{seed}"

    def lesson(self, policy: str, seed: int) -> Lesson:
        """One seed of --rl teacher."""
        env = f"metaworld/{NAMES[self.args.suite]}"
        return lesson_of(
            self.args, policy, self.folder / f"data_{self.args.suite}", env, seed, self.run_of(policy, seed)
        )

    def costs(self, policy: str, seed: int) -> dict[str, Any]:
        """Environment steps of one seed, those that chose a policy, and CPU seconds."""
        if self.args.rl == "teacher":
            return self.lesson(policy, seed).costs()
        result = json.loads((self.run_of(policy, seed) / "results.json").read_text())
        return {
            "env_steps": result["env_steps"],
            "selection": result["steps"].get("selection", 0),
            "train_cpu_s": result["curve"]["train_cpu_s"],
        }

    def taught(self, policy: str, seed: int) -> ByTask:
        """Outcomes of the VLA that has learned from a teacher, from zero noise as the teacher's base acts."""
        lesson, args = self.lesson(policy, seed), self.args
        lesson.teach(args.rl_steps, len(self.tasks), args.rl_set)
        init = [policy if args.pupil == "base" else None, *lesson.pupils]
        for k, (before, pupil) in enumerate(zip(init, lesson.pupils, strict=False)):
            data = ",".join(map(str, [lesson.demos, *lesson.record(rounds=k + 1)]))
            more = VLA | self.given | {"seed": seed, "steps": updates_of(args, k)}
            more |= {} if before is None else {"init": before}
            more |= {"learn_steps": "human"} if args.taught_steps == "teacher" else {}
            self.train(f"[{data}]", pupil, more)
        return self.success(str(lesson.pupils[-1]), "success", noise=False)

    def tuned(self, policy: str, seed: int) -> ByTask:
        """Outcomes of one seed of the method; a training that was stopped continues."""
        args, out = self.args, self.run_of(policy, seed)
        if args.rl == "teacher":
            return self.taught(policy, seed)
        if not (out / "policy" / "policy.json").exists():
            given = {"base": policy, "out": out, "method": args.rl, "seed": seed, "env_steps": args.rl_steps}
            # at most evaluations at the first and the last step, of which the better policy is kept
            again = {"resume": (out / "run.json").exists(), "eval_episodes": SELECTION * len(self.tasks)}
            where = {"num_workers": args.workers, "device": args.device, "final_episodes": len(self.tasks)}
            verb("finetune", *args.rl_set, **given, **again, **where, eval_every=0)
        return self.success(str(out), "success")

    def say(self, name: str, outcomes: list[bool], by_task: ByTask) -> None:
        rate, args = SuccessRate.of(outcomes), self.args
        more = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson()), "demos_per_task": args.demos}
        more |= {
            "eval_seed": args.eval_seed,
            "updates": args.checkpoint or args.steps,
            "batch_size": args.batch_size,
        } | self.more
        emit(f"vla/{args.suite}/{name}", rate.rate, "fraction", **more, tasks=sorted(by_task))


def joined(outcomes: ByTask) -> list[bool]:
    """Outcomes of all tasks."""
    return [each for of_task in outcomes.values() for each in of_task]


if __name__ == "__main__":
    main()
