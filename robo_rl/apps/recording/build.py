"""Builder of the recording app's node."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardware.bus.protocol import Bus
    from hardware.description import RobotDescription
    from robo_rl.apps.recording.node import RecordAppNode
    from robo_rl.conf.record import RecordAppNodeConfig

SIMULATED_HEARTBEAT_S = 0.2  # longest time without a heartbeat of the policy of a simulated arm


def record_app(config: RecordAppNodeConfig, bus: Bus) -> RecordAppNode:
    """The node, with its page and its terminal as `ui` says."""
    from hardware.bus.choose import make_bus
    from hardware.description import load_description
    from hardware.loop.priority import run_before_other_programs
    from robo_rl.apps.recording.callers import ThreadCaller
    from robo_rl.apps.recording.dataset import camera_names, longest_frames, open_dataset, spec_of
    from robo_rl.apps.recording.episodes import Episodes
    from robo_rl.apps.recording.node import RecordAppNode
    from robo_rl.apps.recording.settings import AppSettings
    from robo_rl.apps.recording.shared_state import SharedState

    robot = load_description(config.robot)
    spec, cameras = spec_of(config, robot, simulated=config.resets), camera_names(config.cameras, robot)
    opened = open_dataset(config, spec)
    most_frames, shorter = longest_frames(config, opened.writer.spec)
    spec = replace(opened.writer.spec, max_episode_steps=most_frames)
    settings = AppSettings(
        robot,
        spec,
        cameras,
        Path(config.out),
        config.transport,
        config.drives,
        config.operator,
        config.resets,
        opened.writer.options.min_free_bytes,
    )
    shared = SharedState()
    made: list[RecordAppNode] = []

    def info() -> dict[str, Any]:
        autonomy = made[0].autonomy
        running = {} if autonomy is None or not autonomy.runner.bundle else {"policy": autonomy.runner.bundle}
        return {"robot": robot.name, "recorded_by": "robo-rl record", **running}

    episodes = Episodes(opened.writer, opened.tally, spec.max_episode_steps, config.operator, info)
    caller = ThreadCaller(lambda: make_bus(f"{bus.name}_calls", config.namespace, config.bus))
    node = RecordAppNode(bus, settings, episodes, shared, caller)
    made.append(node)
    node.autonomy = _autonomy(config, robot, bus, node, caller)
    if config.policy:
        node.notices.tell(node.autonomy.runner.load(config.policy))
    if shorter:
        node.notices.tell(shorter)
    if config.task:
        node.notices.tell(episodes.instruct(config.task))
    opened.report_salvaged(node.notices.tell)  # last: a phone shows the newest message alone
    if config.ui != "terminal":
        node.on_close.append(_serve(config, settings, shared))
    if config.ui != "page":
        from robo_rl.apps.recording.terminal import HELP, Terminal

        print(HELP, flush=True)
        terminal = Terminal(shared, len(robot.names), robot.gripper is not None, bus.now)
        node.on_tick.append(terminal.tick)
        node.on_close.append(terminal.close)
    run_before_other_programs()  # an open browser would delay it
    return node


def _autonomy(
    config: RecordAppNodeConfig, robot: RobotDescription, bus: Bus, node: RecordAppNode, caller: Any
) -> Any:
    """Runner of bundles and training, whose processes end with this one."""
    from hardware.checks.arm_contract import check_contract
    from policies.deploy.bundle import MANIFEST, load_bundle
    from robo_rl.apps.nodes.node_sets import load_set
    from robo_rl.apps.nodes.process import child_command
    from robo_rl.apps.recording.learning.autonomy import Autonomy
    from robo_rl.apps.recording.learning.child import Child
    from robo_rl.apps.recording.learning.policies import NODES, PolicyRunner
    from robo_rl.apps.recording.learning.training import TrainingJob
    from robo_rl.core.errors import RoboRLError

    common = [f"bus={config.bus}", f"namespace={config.namespace}"]
    log = partial(print, flush=True)

    # Beside a simulator, a training and a browser, a heartbeat is often later than a robot's computer allows.
    heartbeat_s = str(SIMULATED_HEARTBEAT_S) if config.resets else "none"

    def check(bundle: str) -> None:  # here, where it is one sentence on the page; each node would say its own
        check_contract(load_bundle(Path(bundle)), robot)

    def words(bundle: str) -> dict[str, list[str]]:
        given = {"robot": config.robot, "bundle": bundle, "heartbeat_s": heartbeat_s}
        all_words = load_set("arm_sim").commands(given)
        transport = f"transport={config.transport}"
        return {name: [*all_words[name], transport, *common] for name in NODES}

    def start_node(name: str, given: Sequence[str]) -> Child:
        return Child(name, child_command("robo_rl.apps.node", given), log)

    def start_verb(name: str, given: Sequence[str]) -> Child:
        return Child(name, child_command("robo_rl", given), log, nice=True)

    runner = PolicyRunner(bus, check, words, start_node, node.notices.tell)

    def trained(bundle: str) -> None:
        runner.offer(bundle)
        node.notices.tell(f"trained: {bundle}")
        if runner.state == "none":
            try:
                node.notices.tell(runner.load(bundle))
            except RoboRLError as error:
                node.notices.tell(str(error), "error")

    runs = Path(config.runs or f"{config.out.rstrip('/')}-policies")
    training = TrainingJob(Path(config.out), runs, config.train, start_verb, node.notices.tell, trained)
    for manifest in sorted(runs.glob(f"*/bundle/{MANIFEST}")):
        runner.offer(str(manifest.parent))
    return Autonomy(runner, training, caller)


def _serve(config: RecordAppNodeConfig, settings: Any, shared: Any) -> Any:
    """Start the page's server; returns what ends it."""
    from policies.remote.address import is_loopback, listen
    from policies.remote.token import make_token, read_token
    from robo_rl.apps.recording.web.access import Access, open_without_token
    from robo_rl.apps.recording.web.facts import facts_of
    from robo_rl.apps.recording.web.review import Review
    from robo_rl.apps.recording.web.server import PageServer
    from robo_rl.apps.recording.web.serving import ServerThread, check_certificate
    from robo_rl.runs.window import has_screen

    check_certificate(config.certificate, config.key)
    listener = listen(config.host, config.port)
    loopback = is_loopback(listener)
    if config.token is not None and not Path(config.token).exists():
        make_token(config.token)
        print(f"record: a new token is in {config.token}; the page asks for it.", flush=True)
    token = read_token(config.token)
    if token is None and not loopback:
        raise open_without_token(config.host)
    port = listener.getsockname()[1]
    secure = config.certificate is not None
    access = Access.of(config.host, port, token, loopback, secure)
    server = PageServer(shared, access, Review(settings.out), facts_of(settings, config))
    thread = ServerThread(server, listener, config.certificate, config.key)
    name = "localhost" if loopback else config.host
    if name in ("0.0.0.0", "::"):  # every address of this machine: no name that a browser could open
        name = socket.gethostname()
    address = f"{'https' if secure else 'http'}://{name}:{port}/"
    print(f"record: the page is at {address}", flush=True)
    print(f"record: a phone or headset drives at {address}phone (docs/recording.md)", flush=True)
    if has_screen():
        if config.open:
            webbrowser.open(address)
    elif loopback:
        print(
            f"record: no display here; from your computer: ssh -L {port}:localhost:{port} <this host>, then "
            "open the page there; or ui=terminal",
            flush=True,
        )
    return thread.close
