"""From ten recorded insertions to a policy on the arm: record, train, fine-tune in simulation, go back.

    python benchmarks/recording_chain.py                 # three recordings, about 45 minutes on two cores

For each recording a scripted operator inserts the peg ten times by keys on the page of `robo-rl record
robot=sim_arm`, in Chromium. Then: `train` as the page's button does, `finetune method=residual_lanes` in the
environment of the recordings, arm6/peg, `export`, and trials of 10 s on the page, as long as an episode of
the environment, in which the policy moves the arm through the robot's nodes and the safety filter in real
time.

`chain/base_success` and `chain/success` are of 100 episodes of the environment that nothing else has seen;
`chain/base_on_page` and `chain/on_page` are of the page. Other programs delay what runs in real time: these
two have the load average at their end. With --without-latency also `chain/success_without_latency`: policies
that are fine-tuned with `latency_ms=0`, in the same episodes, which have a latency. What is finished is kept
in --folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from app_parts.page_training import recorded, tried
from common import emit, own_folder, parser, verb

from robo_rl.conf.record import RecordingSettings
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.stats import SuccessRate

EPISODES, TRIAL_S = 10, 10.0
QUICK = {"env_steps": 1600, "final_episodes": 4, "method.base_steps": 320}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--recordings", type=int, default=3, help="recordings, each with its own training")
    options.add_argument("--trials", type=int, default=20, help="episodes of each policy on the page")
    options.add_argument(
        "--without-latency", action="store_true", help="fine-tune without latency as well, and compare"
    )
    options.add_argument(
        "--folder", type=Path, default=Path("runs/chain"), help="what is finished is kept here"
    )
    args = options.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("chain: no Chromium on this machine, so nothing is recorded", file=sys.stderr)
        return
    folder = own_folder(args.folder)
    seeds, trials = (1, 1) if args.quick else (args.recordings, args.trials)
    made = [Chain(folder / str(seed), chromium, seed, args.quick) for seed in range(seeds)]
    for chain in made:
        chain.record()
        chain.train()
        chain.tune()
    report(made)
    if args.without_latency:
        say("chain/success_without_latency", [chain.without_latency() for chain in made])
    for policy, name in (("tuned", "chain/on_page"), ("base", "chain/base_on_page")):
        found = [chain.on_page(policy, trials) for chain in made]
        say(name, [SuccessRate(k, n) for k, n, _ in found], load=[load for *_, load in found])


class Chain:
    """One recording and what follows from it, in one folder."""

    def __init__(self, home: Path, chromium: str, seed: int, quick: bool) -> None:
        self.home, self.chromium, self.seed, self.quick = home, chromium, seed, quick
        self.data = home / "data"

    def record(self) -> None:
        wanted = 2 if self.quick else EPISODES
        have = len(EpisodeStore(self.data)) if self.data.exists() else 0
        if have < wanted:
            recorded(self.home, self.chromium, self.seed, wanted - have)

    def train(self) -> None:
        """As the page's button does."""
        if not (self.home / "base" / "policy" / "policy.json").exists():
            words = RecordingSettings().train.split()
            if self.quick:
                words = ["steps=20", *words[1:]]
            verb("train", *words, data=self.data, out=self.home / "base", seed=self.seed)

    def tune(self, name: str = "tuned", **more: Any) -> None:
        """By a residual in the environment of the recordings, and a report on new episodes."""
        out = self.home / name
        if not (out / "results.json").exists():
            settings = {"method": "residual_lanes", "seed": self.seed, **more}
            settings |= QUICK if self.quick else {}
            resume = {"resume": True} if (out / "run.json").exists() else {}
            verb("finetune", base=self.home / "base", demos=self.data, out=out, **settings, **resume)

    def without_latency(self) -> SuccessRate:
        """Success, in the environment as it is, of a policy that is fine-tuned without latency."""
        self.tune("tuned_without_latency", env="arm6/peg:latency_ms=0")
        report = self.home / "without_latency.json"
        if not report.exists():
            given = {"policy": self.home / "tuned_without_latency", "env": "arm6/peg"}
            verb("evaluate", **given, episodes=len(self.results["policy"]["seeds"]), out=report)
        return rate_of(json.loads(report.read_text())["policy"])

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "tuned" / "results.json").read_text())
        return found

    def on_page(self, policy: str, trials: int) -> tuple[int, int, float]:
        """Successes and trials of the base or the tuned policy, and the load average at the end."""
        kept = self.home / f"{policy}_on_page.json"
        if not kept.exists():
            bundle = self.home / f"{policy}_bundle"
            if not bundle.exists():
                verb("export", policy=self.home / policy, out=bundle)
            page, seed = self.home / f"{policy}_page", 1000 + self.seed
            rate = tried(page, self.chromium, seed, bundle, trials, longest_s=TRIAL_S)
            kept.write_text(json.dumps([*rate, round(os.getloadavg()[0], 1)]))
        k, n, load = json.loads(kept.read_text())
        return k, n, load


def report(made: list[Chain]) -> None:
    """Lines of the environment: success before and after fine-tuning, and what it took."""
    results = [chain.results for chain in made]
    demos = [sum(each.frames for each in EpisodeStore(chain.data)) / 20.0 for chain in made]  # at 20 Hz
    say("chain/base_success", [rate_of(each["base"]) for each in results], demos_s=demos)
    say(
        "chain/success",
        [rate_of(each["policy"]) for each in results],
        env_steps=[each["env_steps"] for each in results],
        train_cpu_s=[round(each["curve"]["train_cpu_s"]) for each in results],
        base=[rate_of(each["base"]).rate for each in results],
    )


def rate_of(result: dict[str, Any]) -> SuccessRate:
    return SuccessRate(result["rate"]["k"], result["rate"]["n"])


def say(name: str, rates: list[SuccessRate], **extra: Any) -> None:
    """One line for all recordings."""
    whole = SuccessRate(sum(each.k for each in rates), sum(each.n for each in rates))
    interval = [round(bound, 3) for bound in whole.wilson()]
    each = [round(rate.rate, 3) for rate in rates]
    emit(name, whole.rate, "fraction", k=whole.k, n=whole.n, wilson95=interval, seeds=each, **extra)


if __name__ == "__main__":
    main()
