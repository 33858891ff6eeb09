"""Commands for the step after a verb, which it prints at its end.

They can be pasted as they are: paths are quoted, and `out=` is a folder that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from policies.deploy.bundle import MANIFEST
from policies.vla.config import VlaConfig
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.dotted import flat
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.errors import RoboRLError
from robo_rl.core.spec import ROBOT_SUITE
from robo_rl.core.text.commands import command
from robo_rl.core.text.instruction import INSTRUCTION, suits_vla
from robo_rl.data.episodes.schema import DATASET_JSON, DatasetMeta
from robo_rl.eval.stats import SIGNIFICANT, PairedTest, ReturnTest, SuccessRate
from robo_rl.runs.loaded_policy import find_policy, trained_env_spec, trained_noise
from robo_rl.runs.outputs import ending_in_name, free_path
from robo_rl.runs.run_dir import OWN_DATA, POLICIES, RunDir, checkpoint_of, holder_of
from sim.registry import WITH_OPTIONS, instruction_of, tasks_in, with_option

GOOD_ENOUGH = 0.97  # success above which fine-tuning has little to gain
AGAIN = 4  # factor on episodes, for a comparison that was not significant
BASES = ("generative", "vla")  # kinds of policies that robo-rl train makes
TUNED = ("steered", "residual", "best_of")  # kinds of fine-tuned policies over a base, which can be distilled
TEACHERS = (*BASES, "imported_diffusion", *TUNED)  # kinds that can be distilled, see `can_be_distilled`
HEADS = ("single_step", "direct", "one_step")  # kinds that decide in one call
PRIVILEGED = "privileged"  # kind that sees the true state, which no robot does: it teaches another policy
STEERABLE = (*BASES, "imported_diffusion")  # kinds whose noise can be chosen
FLIGHTS = ("flight", "swarm")  # kinds of policies that are run in another simulator next
NEVER = (
    "robo-rl finetune base=<a policy that succeeds at times> env_steps=<more> out=<new run>   (no episode "
    "succeeded; docs/methods.md)"
)
RUN_SETTINGS = "config.yaml"  # in a run folder
INDENT = "\n        "


def after_view(env: str, expert: str | None = None) -> str:
    """Demonstrations of the environment. expert: the user's function that was shown."""
    task = env.partition(":")[0].rpartition("/")[2]
    return command("collect", env=env, expert=expert, out=free_path(Path("data", task)))


def after_data(info: dict[str, Any]) -> str:
    """A policy of the dataset; with an interrupted or no episode, its repair or its recording."""
    if info["interrupted"]:
        return command("data validate", path=info["path"], recover=True)
    if not info["episodes"]:
        return _first_episodes(info["env"], info["path"])
    return train_on(info["path"])


def _first_episodes(env: str, path: str) -> str:
    """Episodes of a simulator, or of the robot for a contract without one."""
    suite, _, robot = env.rpartition("/")
    if suite in ("", ROBOT_SUITE):
        return command("record", robot=f"<description of {robot}>", out=path)
    return command("collect", env=env, out=path)


def train_on(data: str) -> str:
    """A base policy of the dataset, which reads its instructions if it has any."""
    return command("train", policy=_kind_for(data), data=data, out=free_path(Path("runs/base")))


def _kind_for(data: str | None, base: Mapping[str, Any] | None = None) -> str | None:
    """`policy=` of a training: vla after a base of that kind and for a dataset with instructions, else None.

    data: folder, which may be gone. base: content of its policy.json.
    """
    if base is not None and _bottom(base)["kind"] == "vla":
        return "vla"
    there = data is not None and Path(data, DATASET_JSON).is_file()
    return "vla" if there and suits_vla(DatasetMeta.load(Path(str(data))).env) else None


def _better_base(base: str | Path | None, demos: str | None) -> str:
    """Another training of a base that never succeeds: it shows no reward to reinforcement learning."""
    words = {"data": "<more demonstrations>", "steps": "<more>", "out": "<new run>"}
    return f"{_train_like(base, demos, **words)}   (a base that succeeds at times)"


def _train_like(
    base: str | Path | None, demos: str | None, data: str | list[str | Path], **more: object
) -> str:
    """Training of a policy like `base` on `data`: with the settings of its run, or where that is gone, with
    those that its policy.json holds. Instructions in `demos` ask for another kind than one that reads none.
    """
    known = _described(base)
    kind, bottom = _kind_for(demos, known), {"kind": None} if known is None else _bottom(known)
    if bottom["kind"] != (kind or "generative"):
        return command("train", policy=kind, data=data, **more)
    if (run := _trained_in(base)) is not None:
        return command("train", config=run / RUN_SETTINGS, data=data, **more)
    return command("train", policy=kind, data=data, **(_shape_of(bottom) if kind else {}), **more)


def _trained_in(policy: str | Path | None) -> Path | None:
    """Run of `train` that made a policy, or the base below it; None for one that is gone."""
    try:
        folder = find_policy(str(policy))
        of = checkpoint_of(folder)
        run = holder_of(folder) if of is None else of[0]
        settings = RunDir(run).config() if (run / RUN_SETTINGS).is_file() else {}
    except RoboRLError:
        return None
    if "data" in settings:
        return run
    return None if settings.get("base") is None else _trained_in(settings["base"])


def _shape_of(vla: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `train` that give a vision-language-action policy its shape, without the usual ones.

    vla: kind and configuration of the policy.
    """
    from robo_rl.conf.train import TrainConfig

    saved, usual = vla["config"], asdict(TrainConfig(policy=VlaConfig()))
    given = {"chunk": saved["chunk"], "execute": saved["execute"], "policy": saved["vla"]}
    before = dict(flat({key: usual[key] for key in given}))
    return {key: value for key, value in flat(given) if before.get(key, value) != value}


def after_evaluation(folder: Path, rate: SuccessRate | None, env: str | None = None) -> str:
    """What follows for a policy of this kind: fine-tuning, distillation, export or another simulator.

    rate: None where the environment reports no success. env: the one of the evaluation, in which a policy of
    a robot's recordings learns on. The policy of a checkpoint is named <run>@<step>, and nothing is written
    into its run.
    """
    if (folder / MANIFEST).is_file():
        return command("run", bundle=folder)
    data, (policy, home, bundle) = read_policy_json(folder), places_of(folder)
    kind = data["kind"]
    if kind in FLIGHTS:
        return command("transfer", run=policy)
    if rate is not None and rate.k == 0 and kind in (*TEACHERS, *HEADS, PRIVILEGED):
        return _better_base(folder, _demos_of(folder)) if kind in BASES else NEVER
    if kind in HEADS or data["config"].get("vla", {}).get("process", {}).get("steps") == 1:
        return command("export", policy=policy, out=bundle)
    if kind in BASES and (rate is None or rate.rate < GOOD_ENOUGH):
        env, tuned = _learning_env(folder, data, env), free_path(home / "tuned")
        return command("finetune", base=policy, env=env, demos=_demos_of(folder), out=tuned)
    if kind == PRIVILEGED:
        taught = {"takeover": 0.5, "episodes": 300, "out": free_path(home / "taught")}
        simulated = _learning_env(folder, data, env) or trained_env_spec(folder).name
        return command("collect", policy=policy, env=simulated, **taught)
    if not can_be_distilled(data):
        return command("export", policy=policy, out=bundle)
    return command(
        "distill", teacher=policy, env=_learning_env(folder, data, env), out=free_path(home / "head")
    )


def can_be_distilled(policy: Mapping[str, Any]) -> bool:
    """True for teachers that `robo-rl distill` takes, by their kind and that of the base below.

    policy: content of its policy.json.
    """
    base = _bottom(policy)
    if base["kind"] != "vla":
        return base["kind"] in TEACHERS
    vla = base["config"]["vla"]
    return vla.get("head") != "tokens" and not _has_memory(base) and vla["process"]["steps"] > 1


def _bottom(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kind and configuration of the base below all fine-tuning."""
    while policy["kind"] in TUNED:
        policy = policy["config"]["base"]
    return policy


def _described(place: str | Path | None) -> dict[str, Any] | None:
    """Content of policy.json of a policy folder, run or checkpoint; None for one that is gone."""
    try:
        return read_policy_json(find_policy(str(place)))
    except RoboRLError:
        return None


def _learning_env(folder: Path, policy: Mapping[str, Any], evaluated: str | None) -> str | None:
    """Environment that a policy needs whose own has no simulation, that of its evaluation, or gives no
    instruction: there the first of its recorded tasks is one. None for all other policies.

    folder: of the policy.
    policy: content of its policy.json.
    evaluated: environment of the evaluation.
    """
    own, trained = trained_env_spec(folder), policy.get("train", {})
    env = own.name if own.simulated else evaluated
    instructions = trained.get("task_instructions", trained.get("told"))  # told: of earlier checkouts
    if env is None or not instructions or "," in instructions[0]:  # no name can hold a comma
        return None if own.simulated else env
    takes_one = env.partition("/")[0] in WITH_OPTIONS and not tasks_in(env) and instruction_of(env) is None
    if not takes_one:
        return None if own.simulated else env
    return with_option(env, INSTRUCTION, instructions[0])


def winner(test: PairedTest | ReturnTest) -> int | None:
    """Which of two compared policies is significantly better: 0 the first, 1 the second, None neither."""
    if test.p_value >= SIGNIFICANT:
        return None
    if isinstance(test, ReturnTest):
        return 0 if test.mean_difference > 0 else 1
    return 0 if test.only_first > test.only_second else 1


def after_distillation(
    config: DistillVerb, run: Path, teacher: Path, test: PairedTest | ReturnTest, *, widens: bool
) -> str:
    """The head's export; for a head that is significantly worse than its teacher, a longer distillation, or
    the export of the teacher (its folder) if its noise allows one.

    test: of the teacher to the head. widens: whether the head has a network of its own, `net=`.
    """
    if winner(test) != 0:
        return command("export", policy=run, out=run / "bundle")
    more = {"steps": 2 * config.steps, "rounds": config.rounds + 2}
    width = getattr(config.net, "width", None)
    wider = {"net.width": 2 * width} if widens and width is not None else {}
    longer = free_path(run.parent / f"{run.name}-longer")
    ways = [command("distill", config=run / RUN_SETTINGS, **more, **wider, out=longer)]
    policy, _, bundle = places_of(teacher)
    if not (teacher / MANIFEST).is_file() and trained_noise(teacher) in (0.0, 1.0):
        ways.append(f"{command('export', policy=policy, out=free_path(bundle))}   (the teacher itself)")
    return INDENT.join(ways)


def after_tuning(
    config: FinetuneVerb,
    run: Path,
    before: SuccessRate | None,
    after: SuccessRate,
    test: PairedTest | ReturnTest | None,
) -> str:
    """A gain is distilled, a small one confirmed first; without a gain, other ways to improve the base.

    A policy that decides in a single step or cannot be distilled is exported, and one that sees the true
    state teaches another one. test: of the base to the result, by returns where the environment reports no
    success. A confirmation has episodes of another seed: the run's own are those whose luck is in doubt.
    """
    env = _other_env(config)
    confirmation = {"env": env, "episodes": AGAIN * config.final_episodes, "seed": config.eval_seed + 1}
    if before is None or test is None:
        return command("evaluate", policy=run, **confirmation)
    head = free_path(run.parent / "head")
    by_return = isinstance(test, ReturnTest)
    gained = test.mean_difference < 0 if isinstance(test, ReturnTest) else after.rate > before.rate
    if config.method.privileged and gained:
        return _teaching(config, run)
    if gained and test.p_value < SIGNIFICANT:
        made = _described(run)
        if config.method.map.kind == "head" or (made is not None and not can_be_distilled(made)):
            return command("export", policy=run, out=run / "bundle")
        return command("distill", teacher=run, env=env, out=head)
    if gained:
        more = command("evaluate", policy=run, against=config.base, **confirmation)
        return f"{more}   (the gain over the base may be chance)"
    keep = f"{_use_of_base(config.base, env, head)}   (keep the base)"
    if not by_return and before.rate >= GOOD_ENOUGH:
        return keep
    steps = config.env_steps or config.method.env_steps
    longer, other = (free_path(run.parent / f"{run.name}-{word}") for word in ("longer", "other"))
    ways = [
        "the result is not better than the base; one of:",
        command("finetune", config=run / RUN_SETTINGS, env_steps=2 * steps, out=longer),
    ]
    if (settings := _other_method(config)) is not None:
        tried = command("finetune", base=config.base, env=env, **settings, out=other)
        ways.append(f"{tried}   (docs/methods.md)")
    ways.append(keep if by_return or before.k else _better_base(config.base, config.demos))
    return INDENT.join(ways)


def _other_env(config: FinetuneVerb) -> str | None:
    """Environment of the run, where another verb would take another one from the contract of its policy,
    which is the base's: of a robot, of another simulation, or without the instruction in the name.
    """
    if config.env is None or f"{INSTRUCTION}=" in config.env:
        return config.env
    try:
        own = None if config.base is None else trained_env_spec(find_policy(config.base)).name
    except RoboRLError:  # a base that is gone
        own = None
    return None if own in (None, config.env) else config.env


def _use_of_base(base: str | None, env: str | None, head: Path) -> str:
    """Distillation of a base into `head`; the export of one that cannot be distilled."""
    known = _described(base)
    if known is None or can_be_distilled(known):
        return command("distill", teacher=base, env=env, out=head)
    policy, _, bundle = places_of(find_policy(str(base)))
    return command("export", policy=policy, out=free_path(bundle))


def _other_method(config: FinetuneVerb) -> dict[str, Any] | None:
    """Settings of a method that was not tried; None where steering is left and the base cannot be steered.

    A base with a memory plans as often as in its training, and no demonstrations are replayed for it.
    """
    base = _described(config.base)
    remembers = base is not None and _has_memory(base)
    demos = {"demos": config.demos or "<dataset>"}
    if config.method.name == "auto" and config.demos is None and not remembers:
        return demos
    if config.method.name in ("auto", "residual"):
        if base is not None and base["kind"] not in STEERABLE:  # fine-tuned itself, or without noise
            return None
        return {"method": "steering"} | ({"method.execute": "null"} if remembers else {})
    without = {"method.mix.demo": 0, "method.mix.online": 1}
    return {"method": "residual"} | (without if remembers else demos)


def _has_memory(policy: Mapping[str, Any]) -> bool:
    """True for a policy, or a base below it, that remembers decisions. policy: content of its policy.json."""
    return bool(_bottom(policy)["config"].get("vla", {}).get("memory"))


def _teaching(config: FinetuneVerb, run: Path) -> str:
    """Commands that let a policy learn from one that sees the true state."""
    env = config.env or trained_env_spec(find_policy(str(config.base))).name
    data, pupil = free_path(run.parent / "taught"), free_path(run.parent / "pupil")
    ways = (
        "this policy runs in simulation only; one that sees what the robot measures learns from it:",
        command("collect", policy=run, env=env, takeover=0.5, episodes=300, out=data),
        _train_like(config.base, config.demos, [config.demos or "<its demonstrations>", data], out=pupil),
    )
    return INDENT.join(ways)


def _demos_of(policy: Path) -> str | None:
    """The dataset that the run of `train` around a policy folder learned from; None if it is gone, or one of
    several. Of a joint training, that of this policy's robot.
    """
    of = checkpoint_of(policy)
    run = holder_of(policy) if of is None else of[0]
    if not (run / RUN_SETTINGS).is_file():
        return None
    own = read_policy_json(policy).get("train", {}).get(OWN_DATA)
    data = RunDir(run).config().get("data") if own is None else own[0] if len(own) == 1 else None
    return data if isinstance(data, str) and Path(data, DATASET_JSON).is_file() else None


def places_of(folder: Path) -> tuple[str, Path, Path]:
    """(name of the policy for other verbs, folder of new runs, folder of its bundle).

    New runs lie beside the run of the policy, also beside that of a checkpoint.
    """
    folder = ending_in_name(folder)
    of, holder = checkpoint_of(folder), holder_of(folder)
    further = ending_in_name(folder.parent).name == POLICIES
    if of is not None:
        run, step = of[0], of[1].lstrip("0") or "0"
        name = f"{run}@{step}" if step.isdecimal() and not further else str(folder)
        robot = f"-{folder.name}" if further else ""
        return name, run.parent, free_path(run.parent / f"{run.name}-{step}{robot}-bundle")
    if (further or folder.name != "policy") and (holder / "run.json").is_file():  # such as seed1 of a fly run
        return str(folder), holder.parent, folder / "bundle"
    run = holder if (holder / "run.json").is_file() else folder
    return str(run), run.parent, run / "bundle"
