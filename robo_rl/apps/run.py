"""`robo-rl run`: a bundle in closed loop, at its rate."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from hardware.checks.flight_contract import CRAFTS, TASKS
from hardware.layout import action_joints
from policies.deploy.bundle import Bundle, check_env, load_bundle
from policies.deploy.graph import Device
from policies.deploy.kept_prefix import times_text
from policies.deploy.runner import LoopReport, OnnxPolicy, bundle_noise, run_closed_loop
from policies.executor import ChunkExecutor
from policies.instructed_policy import InstructedPolicy
from policies.remote.address import PREFIX, is_remote
from policies.vocabulary import unread_sentence
from robo_rl.conf.schema import RunConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_json
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.provenance import commit, machine
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.commands import command
from robo_rl.core.text.instruction import INSTRUCTION, with_instruction
from robo_rl.core.text.missing_rate import missing_rate
from robo_rl.runs.loaded_policy import unread_in
from robo_rl.runs.outputs import check_report
from robo_rl.runs.progress import progress
from sim.registry import make_env

DEVICES: dict[str, Device] = {"auto": "auto", "cpu": "cpu", "cuda": "cuda", "tensorrt": "tensorrt"}


def main(config: RunConfig) -> int:
    """Run, and report deadlines and success."""
    if config.rate_hz is not None and config.rate_hz <= 0.0:
        raise ConfigError(f"rate_hz={config.rate_hz} cannot be used, expected a rate above 0 Hz.")
    check_report("out", config.out, "bundle")
    if is_remote(config.bundle):
        raise ConfigError(
            f"bundle={config.bundle} is a served policy, and run reads the contract from a bundle on this "
            f"machine. Give bundle=<a copy of it> robot=<...> remote={config.bundle.removeprefix(PREFIX)}; "
            f"to measure it in an environment: robo-rl evaluate policy={config.bundle}"
        )
    bundle = load_bundle(Path(config.bundle))
    if config.robot is not None:
        from robo_rl.apps.nodes.run_robot import run_robot

        return run_robot(config, bundle)
    if config.realtime:
        raise ConfigError(
            "realtime=true is for robot=sim_arm only: an environment waits for each chunk. Leave it out."
        )
    if config.remote:
        raise ConfigError(
            "remote=<host>:<port> is for robot=sim_arm and robot=sim_quad. To measure a served policy in an "
            f"environment: robo-rl evaluate policy=remote:{config.remote}"
        )
    policy = OnnxPolicy(bundle, DEVICES[config.device], config.threads)
    rate_hz = config.rate_hz or bundle.env.control_hz
    episodes = config.episodes if config.episodes or config.seconds else 1
    name = config.env or bundle.env.name
    if sentence := unread_sentence(bundle.folder, unread_in(bundle.folder, name)):
        print(sentence)
    with closing(make_env(name, 1, max_episode_steps=config.max_episode_steps)) as env:
        acting = instructed_policy(policy, bundle, env.spec)
        if rate := "" if config.rate_hz else missing_rate(env.spec.name, rate_hz):
            print(rate)
        with progress(None, "run", "tick") as bar:
            report = run_closed_loop(
                env,
                ChunkExecutor(acting, 1),
                bundle_noise(bundle),
                rate_hz,
                episodes=episodes,
                seconds=config.seconds,
                eval_seed=config.seed,
                on_tick=bar.update,
            )
    print(f"{bundle.folder} on {env.spec.name}: {report}")
    if policy.prefix is not None:
        print(f"{times_text('prefix', policy.prefix.took)}; {times_text('head', policy.head_took)}")
    print(f"decision times: {policy.runtime}; robo-rl evaluate of a policy folder measures torch instead")
    if config.out:
        write_report(Path(config.out), report, bundle.name)
    print(f"Next:   {next_step(bundle) or elsewhere(bundle)}")
    return 0


def instructed_policy(policy: ChunkPolicy, bundle: Bundle, env: EnvSpec) -> ChunkPolicy:
    """The policy, told the bundle's instruction where it reads one and the environment gives none. Raises
    CheckpointError if they do not fit, ConfigError if neither has an instruction.
    """
    if INSTRUCTION in env.obs or INSTRUCTION not in bundle.env.obs:
        check_env(bundle, env)
        return policy
    check_env(bundle, with_instruction(env))  # trained on recordings, whose tasks it was told
    if bundle.instruction is None:
        raise ConfigError(
            f"The bundle {bundle.folder} reads an instruction, and {env.name} gives none. Export it with "
            "instruction=<what to do>, or name an environment that gives one (env=arm/reach:instruction=...)."
        )
    return InstructedPolicy(policy, bundle.instruction)


def next_step(bundle: Bundle) -> str:
    """Command for the same bundle through the nodes of a robot; empty if no robot here can be driven by
    it.
    """
    if bundle.env.name.startswith(CRAFTS):
        # The nodes of a quadcopter hold a point or seek a ball, within the envelope of the bundle.
        flies = bundle.env.name.partition(":")[0] in TASKS and bundle.envelope is not None
        return command("run", bundle=bundle.folder, robot="sim_quad") if flies else ""
    elsewhere = bundle.env.name.startswith(("arm/", "hand/", "mobile/"))  # robots without a description here
    if action_joints(bundle.env.action.unit) and not elsewhere:
        return command("contract", bundle=bundle.folder, robot="sim_arm")
    return ""


def elsewhere(bundle: Bundle) -> str:
    """Where to go on with a bundle that no robot of this project can be driven by."""
    if bundle.env.name.startswith("drone/") and bundle.envelope is None:
        return "robo-rl export of its policy, again   (an earlier version wrote no flight envelope)"
    if bundle.env.name.partition(":")[0] == "quad/hover" and bundle.envelope is None:
        longer = command("fly", task="hover", updates="<more>", out="<new run>")
        return (
            f"{longer}   (train for longer: no robot flies a bundle without a flight envelope, which "
            "measured flights that succeed give it)"
        )
    return f"a bundle for your own robot: docs/robot.md (no robot here has the task {bundle.env.name})"


def write_report(path: Path, report: LoopReport, name: str) -> None:
    """Write the report as JSON, with machine and commit."""
    write_json(path, {"bundle": name, **asdict(report), "machine": machine(), "commit": commit()})
