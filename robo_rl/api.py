"""Python API: the verbs of `robo-rl` as functions that return objects.

    import robo_rl as rr

    data = rr.collect("metaworld/peg-insert-side-v3", out="data/peg20", noise=0.1)
    base = rr.train(data=data, out="runs/base")
    tuned = rr.finetune(base=base, demos=data, out="runs/tuned", method="residual", seed=1)
    print(tuned.rate)  # 88/100 = 88 % [80, 93]
    bundle = rr.export(tuned, out="runs/tuned/bundle")

Keyword arguments are the settings of the verb (`robo-rl train --help all`), checked by the same schema. A
nested setting is a dict, `net={"name": "unet1d", "widths": [64, 128]}`, or a dotted key, as in
`**{"net.width": 128}`. Where a path is expected, a run, dataset or bundle stands for its own.
Mistakes raise `rr.RoboRLError` with the sentence that the command line prints. Nothing is printed unless
`progress=True`.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from policies.deploy.bundle import Bundle
from policies.deploy.bundle import load_bundle as _load_bundle
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.from_python import place, words
from robo_rl.apps.evaluate import Evaluation
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.fields import settings as settings_of
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.conf.schema import CollectConfig, EvaluateConfig, ExportConfig
from robo_rl.conf.train import PretrainConfig, TrainConfig
from robo_rl.core.errors import RoboRLError
from robo_rl.core.files.durable import read_json
from robo_rl.core.files.path_error import explained
from robo_rl.core.plugins import load_plugins
from robo_rl.core.protocols import VecEnv
from robo_rl.data.store import EpisodeStore as Dataset
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import LoadedPolicy, open_policy
from robo_rl.runs.progress import hidden

__all__ = [
    "Bundle",
    "Dataset",
    "Evaluation",
    "LoadedPolicy",
    "RoboRLError",
    "Run",
    "collect",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "load_bundle",
    "load_policy",
    "make_env",
    "pretrain",
    "train",
]

T = TypeVar("T")
Place: TypeAlias = str | os.PathLike[str]  # a path, or an object that has one: Run, Dataset, Bundle


@dataclass(frozen=True)
class Run:
    """A finished run. Rates are None if the verb measures none, or the environment reports no success; both
    are on the same episodes.
    """

    path: Path  # folder of the run
    rate: SuccessRate | None = None  # success of the policy, with its 95 % interval
    before: SuccessRate | None = None  # success of the base or the teacher

    def __fspath__(self) -> str:
        """A run can be given wherever a path is expected."""
        return str(self.path)

    @property
    def policy_path(self) -> Path:
        """Folder of the policy."""
        return self.path / "policy"

    def load_policy(self, device: str = "auto", noise: float | None = None) -> LoadedPolicy:
        """Load the policy of the run."""
        return load_policy(self.path, device=device, noise=noise)


def make_env(name: str, num_envs: int = 1, num_workers: int = 0, **options: Any) -> VecEnv:
    """Vector environment of `num_envs` lanes; `robo-rl info` lists the names.

    `reset(seeds)` takes a number, a list with a seed for each lane, or an iterator of seeds.
    Options are those of the environment, e.g. `max_episode_steps` and `reward`. Modules named in
    ROBO_RL_PLUGINS are imported first.
    """
    from sim.registry import make_env as make

    load_plugins()
    return make(name, num_envs, num_workers, **options)


def load_policy(path: Place, *, device: str = "auto", noise: float | None = None) -> LoadedPolicy:
    """Policy of a policy folder, a run, a checkpoint (`<run>@<step>`) or a bundle.

    noise: scale of its initial noise, as of `evaluate`; 0: deterministic; None: the policy's own.
    """
    number = isinstance(noise, Real) and not isinstance(noise, bool)
    if noise is not None and not (number and 0.0 <= noise < math.inf):
        raise RoboRLError(f"noise={noise!r} cannot be used, expected: number >= 0, or None.")
    with _system_errors():
        loaded = open_policy(place("path", path), pick_device(device))
    return loaded if noise is None else replace(loaded, noise=noise)


def load_bundle(path: Place) -> Bundle:
    """Bundle: its manifest, checked against its files."""
    with _system_errors():
        return _load_bundle(Path(place("path", path)))


def collect(
    env: str | None = None,
    *,
    out: Place,
    expert: str | Callable[..., Any] | None = None,
    progress: bool = False,
    **settings: Any,
) -> Dataset:
    """Record episodes of the scripted expert, of `policy=`, or of `expert=`, as `robo-rl collect` does.

    env: name of the environment; None: the one that `policy=` was trained on.
    expert: a function or class of your own, or its name `<module>:<name>`. It gets one observation as the
    environment gives it, and returns the action in the environment's units; a class is called at the start of
    every episode, and its object acts in it.
    """
    from robo_rl.apps.collect import main
    from sim.adapters.own_function import checked, name_of

    own = None if expert is None or isinstance(expert, str) else checked(expert, "expert")
    name = name_of(own) if own is not None else expert
    config = _settings("collect", CollectConfig, settings, env=env, out=out, expert=name)
    with _output(progress):
        main(config, own)
    return Dataset(config.out)


def train(data: Place | Sequence[Place], *, out: Place, progress: bool = False, **settings: Any) -> Run:
    """Train a base policy on a dataset, or on several, as `robo-rl train` does."""
    from robo_rl.apps.training.base_run import train as run_training

    config = _settings("train", TrainConfig, settings, data=data, out=out)
    with _output(progress):
        return Run(run_training(config).path)


def pretrain(*, data: Place | Sequence[Place], out: Place, progress: bool = False, **settings: Any) -> Run:
    """Learn a picture encoder from pictures alone, as `robo-rl pretrain` does, for `train(image={"init":
    run})`.
    """
    from robo_rl.apps.training.video import pretrain as run_pretraining

    config = _settings("pretrain", PretrainConfig, settings, data=data, out=out)
    with _output(progress):
        return Run(run_pretraining(config).path)


def finetune(*, out: Place, progress: bool = False, **settings: Any) -> Run:
    """Improve a base policy by reinforcement learning, as `robo-rl finetune` does."""
    from robo_rl.apps.finetune import main

    config = _settings("finetune", FinetuneVerb, settings, out=out)
    with _output(progress):
        main(config)
    return _measured(Path(config.out), "policy", "base")


def distill(teacher: Place, *, out: Place, progress: bool = False, **settings: Any) -> Run:
    """Distil a policy into a head that decides in one network call, as `robo-rl distill` does."""
    from robo_rl.apps.distill import main

    config = _settings("distill", DistillVerb, settings, teacher=teacher, out=out)
    with _output(progress):
        main(config)
    return _measured(Path(config.out), "head", "teacher")


def evaluate(policy: Place | Callable[..., Any], *, progress: bool = False, **settings: Any) -> Evaluation:
    """Measure success with its 95 % interval, as `robo-rl evaluate` does.

    `against=` measures another policy on the same episodes. Both may also be functions of your own, of one
    observation as the environment gives it, that return the action in the environment's units; a class is
    called at the start of every episode, and its object acts in it. A function needs `env=`.
    """
    from robo_rl.apps.evaluate import run_evaluation
    from sim.adapters.own_function import name_of

    given = settings | {"policy": policy}
    own = {key: given[key] for key in ("policy", "against") if callable(given.get(key))}
    named = given | {key: name_of(function) for key, function in own.items()}
    config = _settings("evaluate", EvaluateConfig, named)
    with _output(progress):
        return run_evaluation(config, own)


def export(policy: Place, *, out: Place, progress: bool = False, **settings: Any) -> Bundle:
    """Write the bundle of a policy, as `robo-rl export` does, and return it."""
    from robo_rl.apps.export import write

    config = _settings("export", ExportConfig, settings, policy=policy, out=out)
    with _output(progress):
        return write(config)[0]


def _settings(verb: str, schema: type[T], settings: dict[str, Any], **named: Any) -> T:
    """Settings of the verb, checked as on the command line."""
    load_plugins()
    return load_config(verb, list(words(named | settings, settings_of(schema))), schema)


def _measured(path: Path, policy: str, before: str) -> Run:
    """Run with the rates of its results.json."""
    results = read_json(path / "results.json")
    return Run(path, *(_rate(results.get(key)) for key in (policy, before)))


def _rate(result: dict[str, Any] | None) -> SuccessRate | None:
    rate = None if result is None else result["rate"]
    return None if rate is None else SuccessRate(rate["k"], rate["n"])


@contextlib.contextmanager
def _output(shown: bool) -> Iterator[None]:
    """Show progress bars and messages as on the command line, or none. Raises as `_system_errors` does."""
    with _system_errors(), contextlib.ExitStack() as quiet:
        if not shown:
            quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
            quiet.enter_context(hidden())
        yield


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Raise an OSError whose remedy is known, such as a path that may not be read, as RoboRLError."""
    try:
        yield
    except OSError as error:
        if (known := explained(error)) is None:
            raise
        raise known from error
