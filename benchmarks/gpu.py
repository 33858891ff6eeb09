"""All that a GPU is needed for, in parts of at most eight minutes: checks first, then figures.

    python benchmarks/gpu.py --out            # every part, figures into benchmarks/results/ (also: make gpu)
    python benchmarks/gpu.py --part engine    # one part alone
    python benchmarks/gpu.py --device cpu --quick    # the same code in small sizes, to try it without a GPU

Each part is a process of its own: one that fails leaves the others. Names: gpu/<part>/..., and
gpu/<part>/left_out with the reason where a GPU or a package is missing; that is no error. A part that fails
ends with exit status 1 after all others are done.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from common import emit, parser

HERE = Path(__file__).parent
LIMIT_S = 480
PARTS = {
    "checks": "tests that need a CUDA device (pytest -m gpu)",
    "loop": "reads by the host, noise and replay of 4,096 lanes on the device",
    "engine": "MuJoCo Warp: env steps per second, results copied and left on the device",
    "finetune": "the whole loop on arm/lift in MuJoCo Warp: env steps per second with one update per step",
    "peg_insert": "a residual on arm/peg_insert in MuJoCo Warp: success before and after, and its wall time",
    "learner": "updates per second, as graphs and single operations, beside Stable-Baselines3",
    "dynamics": "quadcopter dynamics: drone-steps per second",
    "hover": "seconds to a hovering policy by first-order gradients, and its measured error",
    "base": "updates per second when a base policy is trained, beside one CPU core",
    "head": "decisions per second of a single-step head and of a flow policy, batch 1 and 4,096",
}
NEEDS = {
    "engine": "mujoco_warp",
    "finetune": "mujoco_warp",
    "peg_insert": "mujoco_warp",
}  # packages beside torch


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--part", choices=PARTS, help="one part alone; default: all")
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="device to measure")
    args = options.parse_args()
    chosen = [args.part] if args.part else list(PARTS)
    failed = []
    for part in chosen:
        if reason := left_out(part, args.device):
            emit(f"gpu/{part}/left_out", 1, "parts", why=reason, about=PARTS[part])
        elif not run(part, args.device, args.quick, args.out):
            failed.append(part)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)


def left_out(part: str, device: str) -> str:
    """Reason why a part cannot run here; empty where it can."""
    if device == "cuda" and not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if part == "checks" and device == "cpu":
        return "the tests are for a CUDA device"
    package = NEEDS.get(part, "torch")
    try:
        __import__(package)
    except ModuleNotFoundError as error:
        return f"the package {error.name} is missing: pip install 'robo-rl[gpu]'"
    return ""


def files_of_checks() -> list[str]:
    """Test files with tests for a GPU: importing all others takes a minute and packages that none of these
    need.
    """
    files = sorted((HERE.parent / "tests").rglob("test_*.py"))
    return [str(path) for path in files if "pytest.mark.gpu" in path.read_text()]


def run(part: str, device: str, quick: bool, out: Path | None) -> bool:
    """Run one part in its own process; False if it failed or took too long."""
    quickly = ["--quick"] if quick else []
    if part == "checks":
        words = ["-m", "pytest", "-q", "-m", "gpu", "-W", "default", *files_of_checks()]
    elif part == "loop":
        words = [str(HERE / "device_loop.py"), *quickly]
    else:
        words = [str(HERE / "gpu_parts" / f"{part}.py"), "--device", device, *quickly]
    if out is not None and part != "checks":
        words += ["--out", str(out)]
    print(f"{part}: {PARTS[part]}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run([sys.executable, *words], timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        print(f"{part} took longer than {LIMIT_S} s and was ended.", file=sys.stderr)
        return False
    if part == "checks":  # 5: there are no such tests
        emit("gpu/checks/passed", float(done.returncode in (0, 5)), "1 or 0", exit_status=done.returncode)
    return done.returncode in ((0, 5) if part == "checks" else (0,))


if __name__ == "__main__":
    main()
