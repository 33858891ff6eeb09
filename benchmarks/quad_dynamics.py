"""Speed of the quadcopter engine: drone-steps per CPU-second on one core, compiled and eager.

    python benchmarks/quad_dynamics.py

Names: quad/rk4/<n>/drone_steps_per_cpu_s (10 ms; mass, inertia, thrust, lag and drag differ per drone),
quad/euler/<n>/..., quad/env/<n>/env_steps_per_cpu_s (with observation, cost, ends and fresh starts;
quad/env_noise/... with 18 normal numbers of sensor noise per step as well),
quad/grad/<n>/drone_steps_per_cpu_s (forward and backward through 32 steps); lines with `peer` are other
implementations on the same core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from torch import Tensor

from sim.compile.kernels import compile_kernel, differentiable
from sim.engines.quad.craft import load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, ROTOR, Spread, parameters, start
from sim.flight.flights import Flights
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses

CRAFT = load_craft("cf21")
GRAD_STEPS = 32
ENOUGH_S = 0.4  # shortest duration of a repetition
REPEATS = 5


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--gpu", action="store_true", help="measure on CUDA, per second of wall time")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.gpu:
        return on_gpu(args)
    counts = (1024,) if args.quick else (1, 64, 1024, 16384)
    for num in counts:
        steps(num, "rk4", args)
        if num >= 1024:
            environment(num, noise=False)
        if num >= 1024 and not args.quick:
            steps(num, "euler", args)
            environment(num, noise=True)
    gradients(256 if args.quick else 1024)


def inputs(num: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """(state, command, params, external) of hovering drones, all different."""
    random = torch.Generator().manual_seed(0)
    state = start(num)
    state[ROTOR] = CRAFT.hover_speed
    command = CRAFT.hover_speed + 0.01 * torch.randn(4, num, generator=random)
    params = parameters(
        CRAFT, 0.01, num, Spread(0.1, 0.1, 0.1, 0.1, 0.1), torch.rand(9, num, generator=random) * 2 - 1
    )
    return tuple(value.to(device) for value in (state, command, params, torch.zeros(EXTERNAL_SIZE, num)))


def steps(num: int, integrator: str, args: argparse.Namespace) -> None:
    step = make_step(CRAFT, QuadPhysics(integrator=integrator))
    given = inputs(num)
    kernel = compile_kernel(lambda *x: (step(*x),), given)
    name = f"quad/{integrator}/{num}/drone_steps_per_cpu_s"
    emit(
        name, rate(lambda: kernel(*given), num), "drone-steps/cpu-s", compile_cpu_s=round(kernel.compile_s, 1)
    )
    if integrator == "rk4" and not args.quick:
        with torch.no_grad():
            emit(
                name,
                rate(lambda: step(*given), num),
                "drone-steps/cpu-s",
                peer="the same formulas, eager torch",
            )


def environment(num: int, noise: bool) -> None:
    spread, senses = Spread(0.1, 0.1, 0.1, 0.1, 0.1), FlightSenses(history=0, noise=noise)
    flights = Flights(CRAFT, HoverTask(), senses, num, 0, spread=spread, gradient=False)
    flights.restart()
    action = torch.full((4, num), 2.0 * CRAFT.hover_speed - 1.0)
    name = f"quad/{'env_noise' if noise else 'env'}/{num}/env_steps_per_cpu_s"
    steps_per_s = rate(lambda: flights.step(action), num)
    emit(name, steps_per_s, "env-steps/cpu-s", compile_cpu_s=round(flights.compile_s, 1))


def gradients(num: int) -> None:
    step = make_step(CRAFT, QuadPhysics())
    given = inputs(num)
    compiled, compile_s = differentiable(lambda *x: (step(*x),), given, (0, 1))
    state, command, params, external = given
    command = command.requires_grad_()

    def there_and_back(advance: Callable[..., Tensor]) -> None:
        now = state
        for _ in range(GRAD_STEPS):
            now = advance(now, command, params, external)
        now[0:3].square().sum().backward()

    name, unit = f"quad/grad/{num}/drone_steps_per_cpu_s", "drone-steps/cpu-s"
    ours = rate(lambda: there_and_back(lambda *x: compiled(*x)[0]), num * GRAD_STEPS)
    emit(name, ours, unit, compile_cpu_s=round(compile_s, 1))
    emit(
        name,
        rate(lambda: there_and_back(step), num * GRAD_STEPS),
        unit,
        peer="the same formulas, eager torch",
    )


def rate(work: Callable[[], object], per_call: int) -> float:
    """Best of some repetitions, per CPU-second."""
    work()
    calls = 1
    while (took_s := timed(work, calls)) < ENOUGH_S:
        calls = max(calls + 1, int(calls * min(10.0, 1.2 * ENOUGH_S / max(took_s, 1e-4))))
    best_s = min(took_s, *(timed(work, calls) for _ in range(REPEATS - 1)))
    return round(calls * per_call / best_s)


def timed(work: Callable[[], object], calls: int) -> float:
    start_s = time.process_time()
    for _ in range(calls):
        work()
    return time.process_time() - start_s


def on_gpu(args: argparse.Namespace) -> None:
    """The same kernels on CUDA, 2^20 drones, wall time."""
    if not torch.cuda.is_available():
        raise SystemExit("--gpu needs a CUDA device; torch sees none here.")
    num = 2**16 if args.quick else 2**20
    given = inputs(num, "cuda")
    for integrator in ("rk4", "euler"):
        step = make_step(CRAFT, QuadPhysics(integrator=integrator))
        kernel = compile_kernel(lambda *x, step=step: (step(*x),), given)
        for _ in range(20):
            kernel(*given)
        torch.cuda.synchronize()
        start_s, calls = time.monotonic(), 1000
        for _ in range(calls):
            kernel(*given)
        torch.cuda.synchronize()
        per_s = calls * num / (time.monotonic() - start_s)
        emit(f"quad/{integrator}/{num}/drone_steps_per_s/gpu", round(per_s), "drone-steps/s")


if __name__ == "__main__":
    main()
