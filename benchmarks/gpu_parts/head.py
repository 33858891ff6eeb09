"""Decisions per second of a single-step head and of the flow policy that it replaces.

gpu/head/<single_step|flow>/<batch>/decisions_per_s, in eager torch, and .../graph_decisions_per_s: the same
as a CUDA graph, on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from base import NETS, SPEC
from timing import emit, facts, options, seconds, unit

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.process import make_process
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoderConfig


def main() -> None:
    args = options(__doc__)
    for label, steps in (("single_step", 1), ("flow", 10)):
        for batch in (1, 4096):
            work = decide(steps, batch, args.device)
            calls = 5 if args.quick or args.device == "cpu" else 200
            name = f"gpu/head/{label}/{batch}"
            taken_s = seconds(work, calls, args.device)
            emit(
                f"{name}/decisions_per_{unit(args.device)}",
                round(batch / taken_s, 1),
                "decisions/s",
                **facts(args.device),
            )
            if args.device == "cuda":
                taken_s = seconds(captured(work), calls, args.device)
                line = f"{name}/graph_decisions_per_s"
                emit(
                    line,
                    round(batch / taken_s, 1),
                    "decisions/s",
                    us=round(1e6 * taken_s, 1),
                    **facts(args.device),
                )


def decide(steps: int, batch: int, device: str) -> Callable[[], object]:
    """One chunk for `batch` observations, from an MLP policy with random weights."""
    torch.manual_seed(0)
    normalizer = Normalizer.fit({"state": torch.rand(64, 32)})
    config = GenerativeConfig(obs_steps=2, chunk=16, execute=8, net=NETS["mlp"], image=ImageEncoderConfig())
    policy = (
        GenerativePolicy(SPEC, normalizer, config, make_process(FlowConfig(steps=steps))).to(device).eval()
    )
    obs, noise = {"state": torch.rand(batch, 2, 32, device=device)}, torch.randn(batch, 16, 8, device=device)

    @torch.no_grad()
    def work() -> object:
        return policy.sample(obs, noise)

    return work


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """The same work as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


if __name__ == "__main__":
    main()
