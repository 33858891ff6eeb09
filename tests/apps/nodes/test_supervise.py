"""Supervision of several real processes that record what happens to them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robo_rl.apps.nodes import supervise
from robo_rl.apps.nodes.process import child_command
from robo_rl.apps.nodes.supervise import Supervisor, ending

ROOT = Path(__file__).resolve().parents[3]
# A node that comes to rest after 0.1 s, and says each step; `stubborn` ones do not listen.
NODE = """
import signal, sys, time
name, stubborn = sys.argv[1], len(sys.argv) > 2
say = lambda *words: sys.stdout.write(" ".join(map(str, words)) + "\\n") and sys.stdout.flush()  # one write
asked = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: asked.append(signal.Signals(number).name))
say("up")
while not asked or stubborn:
    time.sleep(0.01)
say("braking after", *asked)
time.sleep(0.1)
say("at rest after", len(asked), "signals")
"""


def node(*words: str) -> list[str]:
    return [sys.executable, "-c", NODE, *words]


def wait_for(lines: list[str], text: str, seconds: float = 10.0) -> None:
    late_s = time.monotonic() + seconds
    while not any(text in line for line in lines) and time.monotonic() < late_s:
        time.sleep(0.02)


class Ctrl:
    """Prints like a terminal, and presses Ctrl-C after a given output."""

    def __init__(self, lines: int, number: int = signal.SIGINT) -> None:
        self.lines: list[str] = []
        self._left, self._number = lines, number

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._number)


@pytest.fixture
def hears_hang_up() -> Iterator[None]:
    """Handle SIGHUP, which `nohup` would ignore for the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hears_hang_up")
@pytest.mark.parametrize(
    ("number", "why"),
    [
        (signal.SIGINT, "SIGINT"),
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGQUIT, "SIGQUIT"),
        (signal.SIGHUP, "the terminal is gone"),
    ],
)
def test_nodes_stop_one_by_one_in_reverse(number: int, why: str) -> None:
    """Each receives one SIGINT, and the next one only when it is at rest; lines have the node's name."""
    terminal = Ctrl(3, number)
    code = Supervisor({"robot": node("r"), "filter": node("f"), "policy": node("p")}, terminal).run()
    assert code == 0
    assert terminal.lines[3] == f"up: {why}: stopping policy, filter, robot."
    rest = terminal.lines[4:-1]
    assert rest == [
        f"{name:<6} | {what}"
        for name in ("policy", "filter", "robot")
        for what in ("braking after SIGINT", "at rest after 1 signals")
    ]
    assert terminal.lines[-1] == "up: all nodes are stopped."
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit(2)", "policy has ended by itself (exit code 2)"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "policy has ended by itself (killed by SIGKILL)",
        ),
        ("pass", "policy has ended by itself (exit code 0)"),
    ],
)
def test_end_of_one_node_stops_all(script: str, said: str) -> None:
    """After any kind of end, the others brake, and the reason is reported."""
    lines: list[str] = []
    commands = {"robot": node("r"), "filter": node("f"), "policy": [sys.executable, "-c", script]}
    assert Supervisor(commands, lines.append).run() == 3
    assert f"up: {said}: stopping filter, robot." in lines
    assert sum("at rest" in line for line in lines) + sum("up" in line and "|" in line for line in lines) >= 2


def test_filter_brakes_before_the_others_stop_when_a_node_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the policy is noticed at once, and the filter is asked before the head has stopped."""
    monkeypatch.setattr(supervise, "LOOK_S", 60.0)
    lines: list[str] = []
    commands = {
        "robot": node("r"),
        "safety_filter": node("f"),
        "head": node("h", "stubborn"),
        "policy": [sys.executable, "-c", "import time; time.sleep(0.5)"],
    }
    monkeypatch.setattr(supervise, "REST_S", 1.0)
    assert Supervisor(commands, lines.append).run() == 3
    rest = lines.index("safety_filter | at rest after 1 signals")
    assert rest < lines.index("robot         | braking after SIGINT")
    assert rest < next(i for i, line in enumerate(lines) if line.startswith("up: head did not stop"))


TYPIST = """
import fcntl, sys, termios
from robo_rl.apps.nodes.supervise import Supervisor
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
reads = "import os, tty; tty.setcbreak(0); print('ready'); print('key', os.read(0, 1)); "
reads += "os.kill(os.getpid(), 9)"
idles = "import sys, time; print('keyless', sys.stdin.read() == ''); time.sleep(60)"
commands = {name: [sys.executable, "-uc", script] for name, script in (("other", idles), ("hand", reads))}
Supervisor(commands, lambda line: print(line, flush=True), "hand").run(30.0)
print("lines again", bool(termios.tcgetattr(0)[3] & termios.ICANON))
"""


def test_terminal_keys_go_to_one_node_and_settings_are_restored() -> None:
    """A key without Enter reaches one node only; a killed node leaves the terminal's settings unchanged."""
    ours, terminal = pty.openpty()
    argv = [sys.executable, "-c", TYPIST]
    with subprocess.Popen(
        argv, stdin=terminal, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as up:
        os.close(terminal)
        assert up.stdout is not None
        lines: list[str] = []
        waited_for = {"hand  | ready", "other | keyless True"}  # a key ends the hand, and with it the other
        for line in up.stdout:
            lines.append(line.rstrip())
            if lines[-1] in waited_for and waited_for <= set(lines):
                os.write(ours, b"q")
    os.close(ours)
    assert "hand  | key b'q'" in lines
    assert "other | keyless True" in lines
    assert lines[-1] == "lines again True"


def test_supervisor_stops_after_seconds() -> None:
    lines: list[str] = []
    assert Supervisor({"robot": node("r")}, lines.append).run(seconds=0.6) == 0
    assert "up: the time is over: stopping robot." in lines


def test_hanging_node_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "REST_S", 0.3)
    terminal = Ctrl(2)
    Supervisor({"robot": node("r"), "filter": node("f", "stubborn")}, terminal).run()
    assert any("filter did not stop within 0.3 s and was killed" in line for line in terminal.lines)
    assert any("robot" in line and "at rest" in line for line in terminal.lines)


def test_supervisor_waits_for_a_landing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node needs 0.1 s to rest here, longer than the limit of others."""
    monkeypatch.setattr(supervise, "REST_S", 0.02)
    terminal = Ctrl(2)
    Supervisor({"flight_filter": node("f"), "policy": node("p")}, terminal).run()
    assert any("policy did not stop" in line for line in terminal.lines)
    assert any("flight_filter" in line and "at rest" in line for line in terminal.lines)


def test_second_ctrl_c_shortens_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its second SIGINT a node holds at once; the wait after that is short."""
    monkeypatch.setattr(supervise, "KILL_S", 0.3)
    terminal = Ctrl(2)
    start_s = time.monotonic()

    def say(line: str) -> None:
        terminal(line)
        if "stopping" in line:
            os.kill(os.getpid(), signal.SIGINT)

    Supervisor({"filter": node("f", "stubborn"), "policy": node("p")}, say).run()
    assert time.monotonic() - start_s < supervise.REST_S
    killed = (
        "up: filter did not stop within 0.3 s of the second request and was killed; see that the robot holds."
    )
    assert killed in terminal.lines


def test_exit_codes_in_words() -> None:
    assert ending(3) == "exit code 3"
    assert ending(-signal.SIGSEGV) == "killed by SIGSEGV"


SUPERVISOR = """
import os, subprocess, sys, time
begin = "from robo_rl.core import process_signals as p; import sys; p.stop_with_parent(int(sys.argv[1]));"
child = [sys.executable, "-c", begin + {node!r}]
processes = [subprocess.Popen([*child, str(os.getpid())], start_new_session=True) for _ in range(2)]
time.sleep(600)
"""


def test_nodes_come_to_rest_when_their_supervisor_is_killed() -> None:
    """After kill -9 of `robo-rl up` no robot may follow an unsupervised policy."""
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR.format(node=NODE)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert supervisor.stdout is not None
    assert [supervisor.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    supervisor.kill()
    supervisor.wait()
    rest = supervisor.stdout.read().splitlines()  # ends when both nodes have
    supervisor.stdout.close()
    assert rest.count("braking after SIGTERM") == 2


def test_variables_are_added_to_the_environment_of_the_nodes() -> None:
    """Beside those of this process, which are unchanged."""
    lines: list[str] = []
    show = [sys.executable, "-c", "import os; print(os.environ['NETWORK'], 'PATH' in os.environ)"]
    Supervisor({"robot": show}, lines.append, environment={"NETWORK": "lo"}).run()
    assert "robot | lo True" in lines
    assert "NETWORK" not in os.environ


def test_a_signal_while_a_program_is_imported_ends_in_one_line(tmp_path: Path) -> None:
    """The program cannot answer it yet."""
    (tmp_path / "slow_program.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        child_command("slow_program", ["recorder"]),
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert said == "recorder: interrupted.\n"
    assert process.returncode == 130
