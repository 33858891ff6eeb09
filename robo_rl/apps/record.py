"""`robo-rl record`: drive an arm and record episodes, on a page in the browser or in a terminal."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from random import randrange

from hardware.bus.choose import check_installed, choose, make_bus
from hardware.bus.names import domain_id, namespace_of
from hardware.checks.arm_contract import check_contract
from hardware.description import list_robots, load_description
from hardware.topics import SAFETY_STATE
from policies.deploy.bundle import load_bundle
from policies.remote.address import is_loopback, listen
from policies.remote.token import check_token_folder, read_token
from robo_rl.apps.nodes import preflight
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.process import child_command, ignore_lost_readers
from robo_rl.apps.nodes.supervise import Supervisor, namespace_lock
from robo_rl.apps.recording.dataset import SIMULATED, check_takes, spec_of
from robo_rl.apps.recording.episodes import tally_of
from robo_rl.apps.recording.learning.training import LEAST_EPISODES, rule_of
from robo_rl.apps.recording.web.access import open_without_token
from robo_rl.conf.record import RecordConfig, RecordingSettings
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.packages import pip_install
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.recover import staging_sentence
from robo_rl.data.episodes.schema import DATASET_JSON
from robo_rl.runs.outputs import check_folder, free_path

APP = "record_app"
SIMULATED_GRIPPER = "sim_arm_gripper"
RUNNING = "ros2"  # robot=: that of a safety filter which runs already
SEARCH_S = 5.0  # for that filter; it reports twice a second
PICTURE_PX = 128


def main(config: RecordConfig) -> int:
    """Run the app, and the robot's nodes unless `attach`, until it is stopped."""
    ignore_lost_readers()
    bus = choose(config.bus)
    check_installed(bus)
    if config.robot == RUNNING:
        config = replace(config, robot=running_robot(config), attach=True)
    words = check(config)
    words[APP] = app_words(config)
    common = [f"bus={bus}", f"namespace={config.namespace}"]
    commands = {name: child_command("robo_rl.apps.node", [*given, *common]) for name, given in words.items()}
    lock = nullcontext() if config.attach else namespace_lock(domain_id(None), config.namespace)
    with lock:
        if config.ui != "terminal":
            check_address(config)
        print(
            f"record: nodes: {', '.join(commands)}. Ctrl-C stops them and keeps what is recorded.", flush=True
        )
        key_reader = APP if config.ui != "page" and sys.stdin.isatty() else None
        code = Supervisor(commands, partial(print, flush=True), key_reader, name="record").run(config.seconds)
    report(config)
    return code


def report(config: RecordConfig) -> None:
    """Say what the dataset holds now, and what can follow."""
    if not (Path(config.out) / DATASET_JSON).exists():
        return
    tally, waiting = tally_of(Path(config.out)), staging_sentence(config.out)
    held = f"{counted(tally.episodes, 'episode')}, {counted(tally.successes, 'success', 'successes')}"
    interrupted = f", {tally.interrupted} interrupted" if tally.interrupted else ""
    print(f"record: {config.out} holds {held}{interrupted}.", flush=True)
    if waiting:  # the app was killed, or its disk was full
        print(f"record: {waiting}", flush=True)
    if tally.episodes:
        print(f"Next:   {command('data list', path=config.out)}", flush=True)
    if tally.trainable(rule_of(config.train)) >= LEAST_EPISODES:  # as the page's button
        run = free_path(Path("runs", Path(config.out).name))
        given = shlex.join(shlex.split(config.train))  # quoted: some shells expand [16,32]
        print(f"        {command('train', data=config.out, out=run)} {given}", flush=True)


def running_robot(config: RecordConfig) -> str:
    """Name of the description that a running safety filter reports. Raises ConfigError if none is heard."""
    bus, found = make_bus(f"{APP}_search", config.namespace, config.bus), list[str]()
    try:
        SAFETY_STATE.subscribe(
            bus, lambda message, _: found.extend(each.hardware_id for each in message.status)
        )
        until_s = bus.now() + SEARCH_S
        bus.spin(lambda: bool(found) or bus.now() > until_s)
    finally:
        bus.close()
    if not found:
        raise ConfigError(
            f"robot={RUNNING} joins nodes that run already, but no safety filter is heard for {SEARCH_S:g} s "
            f"in this ROS domain and namespace '{config.namespace or '/'}'. Start it, or give "
            "robot=<description> and driver= or controller=."
        )
    if found[0] not in list_robots():
        raise ConfigError(
            f"The safety filter's robot is '{found[0]}', whose description is not included. Give its file: "
            "robot=<file> attach=true."
        )
    print(f"record: the safety filter's robot is {found[0]}.", flush=True)
    return found[0]


def check(config: RecordConfig) -> dict[str, list[str]]:
    """Nodes of the robot, as `robot_words`, before any of them is started or a dataset is made.

    Raises ConfigError for settings that no node could start with, CheckpointError for a policy that is no
    bundle or does not fit the robot, and DataError for a folder that cannot take the episodes.
    """
    namespace_of(config.namespace)
    robot = load_description(config.robot)
    words = with_device({}, config) if config.attach else robot_words(config)
    preflight.check(words)
    if config.policy:
        check_contract(load_bundle(Path(config.policy)), robot)
    spec = spec_of(config, robot, simulated=simulated(config))
    check_takes(Path(config.out), spec)
    check_folder("out", config.out)
    if config.runs:  # the default is not checked: an app that never trains need not write there
        check_folder("runs", config.runs)
    if config.token is not None and not Path(config.token).exists():
        check_token_folder(config.token)
    if config.train != RecordConfig().train:
        check_train(config.train)
    if config.ui != "page" and not sys.stdin.isatty():
        raise ConfigError(f"ui={config.ui} reads keys, but this is no terminal. Start it in one.")
    if config.ui != "terminal":
        try:
            import fastapi  # noqa: F401
            import uvicorn  # noqa: F401
            import websockets  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"The page needs '{error.name}', which is not installed. Run: {pip_install('app')}; or use "
                "ui=terminal."
            ) from error
    return words


def check_address(config: RecordConfig) -> None:
    """Raise ConfigError for a page that could not be served, or would be open to everyone."""
    from robo_rl.apps.recording.web.serving import check_certificate

    check_certificate(config.certificate, config.key)
    with listen(config.host, config.port) as listener:
        loopback = is_loopback(listener)
    if config.token is None or Path(config.token).exists():  # else it is made with the page
        token = read_token(config.token)
        if token is None and not loopback:
            raise open_without_token(config.host)


def check_train(words: str) -> None:
    """Raise ConfigError for settings of `train=` that robo-rl train would refuse."""
    from robo_rl.apps.cli.config import load_config
    from robo_rl.apps.cli.overrides import refuse_repeats
    from robo_rl.conf.train import TrainConfig

    try:
        given = shlex.split(words)
        if own := next((word for word in given if word.lstrip("+").partition("=")[0] in ("data", "out")), ""):
            raise ConfigError(
                f"{own} is set by the page's button. Leave it out; runs= is the policies' folder."
            )
        refuse_repeats(given)
        load_config("train", ["data=data", "out=run", *given], TrainConfig)
    except ValueError as error:
        raise ConfigError(f"train={words}: {error}. Write key=value, with spaces between them.") from error
    except RoboRLError as error:
        raise ConfigError(f"train={words}: {error}") from error


def robot_words(config: RecordConfig) -> dict[str, list[str]]:
    """Nodes of the robot, in starting order: name -> words."""
    robot = load_description(config.robot)
    real = {"driver": config.driver, "controller": config.controller}
    given = {key: value for key, value in real.items() if value}
    if given:
        values = {"robot": config.robot, "device": config.device, "arm": "false", "record": "", **given}
        words = load_set("teleop").commands(values | {"transport": config.transport})
        return with_device(words, config)
    if robot.name not in (SIMULATED, SIMULATED_GRIPPER):
        raise ConfigError(
            f"Nothing runs '{robot.name}' yet. Give driver=<file> or controller=<name> of the real arm, "
            f"attach=true if its nodes run already, or robot={SIMULATED}."
        )
    names = "+".join(robot.cameras) if config.cameras == "auto" else config.cameras
    scene = "peg" if robot.name == SIMULATED else "reach"  # a gripper takes the place of the peg
    values = {"robot": config.robot, "device": config.device, "cameras": names, "goal": "", "scene": scene}
    words = load_set("arm_sim").commands(values | {"arm": str(config.arm).lower()})
    if scene == "peg":
        seed = randrange(2**31) if config.seed is None else config.seed
        words["sim_robot"] += [f"image_size={PICTURE_PX}", f"seed={seed}"]
    return with_device(words, config)


def with_device(words: dict[str, list[str]], config: RecordConfig) -> dict[str, list[str]]:
    """The same with settings of the device that drives. Raises ConfigError for those without a device."""
    settings = {
        "settings": config.device_settings,
        "leader": config.leader,
        "record_input": config.record_input,
    }
    given = {key: value for key, value in settings.items() if value}
    if given and "teleop" not in words:
        raise ConfigError(
            "device_settings=, leader= and record_input= are of a device that this command starts: give "
            "device=, such as device=leader, without attach=true."
        )
    if not given:
        return words
    kept = [word for word in words["teleop"] if word.partition("=")[0] not in given]
    return words | {"teleop": [*kept, *(f"{key}={value}" for key, value in given.items())]}


def app_words(config: RecordConfig) -> list[str]:
    """Words of the app's own node."""
    given = {item.name: getattr(config, item.name) for item in fields(RecordingSettings)}
    own = {"drives": not config.device, "resets": simulated(config)}
    return [APP, *(f"{key}={_text(value)}" for key, value in {**given, **own}.items() if value is not None)]


def simulated(config: RecordConfig) -> bool:
    """True where this command starts the robot, a simulated one."""
    return not config.attach and not (config.driver or config.controller)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
