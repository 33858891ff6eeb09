"""Quadcopter dynamics: drone-steps per second of the compiled kernel.

gpu/dynamics/<rk4|euler>/drone_steps_per_s: 10 ms steps; mass, inertia, thrust, lag and drag differ per drone.
"""

from __future__ import annotations

# isort: off
from timing import emit, facts, options, seconds, unit  # first: it adds benchmarks/ to the path
from quad_dynamics import CRAFT, inputs

# isort: on
from sim.compile.kernels import compile_kernel
from sim.engines.quad.dynamics import QuadPhysics, make_step


def main() -> None:
    args = options(__doc__)
    num = 1024 if args.device == "cpu" else 2**16 if args.quick else 2**20
    given = inputs(num, args.device)
    for integrator in ("rk4", "euler"):
        step = make_step(CRAFT, QuadPhysics(integrator=integrator))
        kernel = compile_kernel(lambda *x, step=step: (step(*x),), given)  # type: ignore[misc]
        calls = 50 if args.device == "cpu" else 1000
        taken_s = seconds(lambda kernel=kernel: kernel(*given), calls, args.device, warm_up=20)  # type: ignore[misc]
        name = f"gpu/dynamics/{integrator}/drone_steps_per_{unit(args.device)}"
        emit(name, round(num / taken_s), "drone-steps/s", drones=num, **facts(args.device))


if __name__ == "__main__":
    main()
