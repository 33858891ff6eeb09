"""`robo-rl doctor`: capabilities of this machine, missing packages, and the commands that install them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import util
from pathlib import Path
from typing import Literal

from hardware.bus.choose import imports_rclpy
from robo_rl.conf.schema import DoctorConfig
from robo_rl.core.packages import PACKAGES, installed_version, pip_install
from robo_rl.core.provenance import commit, machine, versions

State = Literal["ok", "missing", "note"]  # "note": works, with a limitation
DISK_FREE_GB = 5.0  # less is soon filled by a recording of images
PYTHONS = ((3, 10), (3, 11), (3, 12))

# Draws 64 x 64 pixels of a lit plane in a new process, because a broken driver may abort it.
PROBE = """
import mujoco
body = '<light pos="0 0 3"/><geom type="plane" size="1 1 1"/>'
model = mujoco.MjModel.from_xml_string(f'<mujoco><worldbody>{body}</worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 64, 64)
renderer.update_scene(data)
assert renderer.render().any()
renderer.close()
"""


@dataclass(frozen=True)
class Finding:
    """One line of the report. hint: command that installs what is missing."""

    what: str
    state: State
    detail: str
    hint: str = ""


def main(config: DoctorConfig) -> int:
    """Print the findings; returns 0 if the core works, 2 if a part of the core is missing."""
    findings = [*machine_findings(), *package_findings(), torch_finding(), *ros_findings()]
    if config.render:
        findings.append(render_finding())
    if config.json:
        report = {"machine": machine(), "commit": commit(), "versions": versions()}
        print(json.dumps(report | {"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print(table(findings))
    core = {package.distribution for package in PACKAGES if package.extra is None}
    return 2 if any(finding.state == "missing" and finding.what in core for finding in findings) else 0


def table(findings: list[Finding]) -> str:
    """Aligned text, with installation commands at the end."""
    width = max(len(finding.what) for finding in findings)
    lines = [f"{f.what:<{width}}  {f.state:<7}  {f.detail}" for f in findings]
    hints = list(dict.fromkeys(f.hint for f in findings if f.hint))
    lines += (
        ["", "To install what is missing:", *(f"  {hint}" for hint in hints)]
        if hints
        else ["", "Nothing is missing."]
    )
    return "\n".join(lines)


def machine_findings() -> Iterator[Finding]:
    """Python, cores, memory and disk."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < (3, 11):
        yield Finding("Python", "note", f"{version}: runs policies and bundles; training needs 3.11 or 3.12")
    elif sys.version_info[:2] not in PYTHONS:
        yield Finding("Python", "note", f"{version}: not tested; 3.11 and 3.12 are")
    else:
        yield Finding("Python", "ok", version)
    yield Finding("processor", "ok", machine())
    if (memory := _memory_gb()) is not None:
        yield Finding("memory", "ok" if memory >= 4 else "note", f"{memory:.0f} GB")
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    low = "" if free >= DISK_FREE_GB else "; little for recordings of images"
    yield Finding("disk", "note" if low else "ok", f"{free:.0f} GB free here{low}")
    yield Finding(
        "robo-rl", "ok", f"{versions().get('robo-rl', 'a checkout, not installed')}, commit {commit()}"
    )


def package_findings() -> Iterator[Finding]:
    """Every package that a part of the project needs."""
    for package in PACKAGES:
        origin = f"[{package.extra}]" if package.extra else "core"
        if (version := installed_version(package)) is not None:
            yield Finding(package.distribution, "ok", f"{version:<14} {origin}, {package.purpose}")
        else:
            about = f"{'':<14} {origin}, {package.purpose}"
            if package.extra == "gpu" and not has_gpu():
                yield Finding(package.distribution, "note", f"{about}; there is none here")
            else:
                yield Finding(package.distribution, "missing", about, pip_install(package.extra))


def has_gpu() -> bool:
    """True if an NVIDIA driver is installed, whether or not torch can use it."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()


def torch_finding() -> Finding:
    """Finding on the GPU that torch uses, or on one that torch cannot use."""
    if util.find_spec("torch") is None:
        return Finding("GPU", "note", "unknown without torch")
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("GPU", "ok", ", ".join(names))
    if has_gpu():
        reason = (
            "this torch wheel is built without CUDA"
            if torch.version.cuda is None
            else "its driver does not answer"
        )
        return Finding("GPU", "note", f"there is one, but torch cannot use it: {reason}")
    return Finding("GPU", "note", "none; everything runs on the CPU")


def ros_findings() -> Iterator[Finding]:
    """Findings on ROS 2: whether it is sourced, whether this Python can use it, and which bus nodes
    choose.
    """
    distribution = os.environ.get("ROS_DISTRO")
    found = sorted(Path("/opt/ros").glob("*/setup.bash")) if Path("/opt/ros").is_dir() else []
    rclpy = imports_rclpy()
    if distribution:
        yield Finding("ROS 2", "ok", distribution)
    elif found:
        yield Finding("ROS 2", "note", "installed, not sourced", f"source {found[-1]}")
    else:
        yield Finding("ROS 2", "note", "not here; needed on robots that use it, not for training")
    if rclpy:
        yield Finding("rclpy", "ok", "nodes talk over it")
    elif distribution:
        yield Finding(
            "rclpy",
            "note",
            f"built for the Python of {distribution}, not for this one; nodes can use bus=dds",
        )
    else:
        yield Finding("rclpy", "note", "comes with ROS 2: https://docs.ros.org/en/jazzy/Installation.html")
    without = all(util.find_spec(name) is not None for name in ("cyclonedds", "rosbags"))
    if rclpy or without:
        yield Finding("robot nodes", "ok", "bus=auto is rclpy" if rclpy else "bus=auto is DDS without ROS")
    else:
        yield Finding("robot nodes", "note", "no bus to talk over", pip_install("dds"))
    if rclpy or without:
        yield network_finding(rclpy)


def network_finding(rclpy: bool) -> Finding:
    """Sentence on which senders the nodes of this machine receive from, by bus and network interface."""
    interface = os.environ.get("ROBO_RL_INTERFACE")
    if rclpy:
        reach = "ROS 2 receives on every network of this machine; anybody there can command the robot"
    elif interface and interface != "lo":
        reach = f"ROBO_RL_INTERFACE={interface}: anybody on that network can command the robot"
    else:
        return Finding("robot network", "ok", "nodes hear programs of this machine alone (loopback)")
    return Finding("robot network", "note", f"{reach}. SAFETY.md says what to do")


def render_finding() -> Finding:
    """Finding on the method of rendering that works without a display."""
    if util.find_spec("mujoco") is None:
        return Finding("rendering", "note", "unknown without mujoco")
    if (works := next(filter(_renders, ("egl", "osmesa")), None)) is not None:
        return Finding("rendering", "ok", f"without a display, by MUJOCO_GL={works}")
    return Finding(
        "rendering",
        "missing",
        "no videos of MuJoCo tasks",
        "apt install libegl1 libgl1-mesa-dri   # as root; Debian, Ubuntu",
    )


def _renders(backend: str) -> bool:
    environment = os.environ | {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _memory_gb() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (ValueError, OSError):
        return None
