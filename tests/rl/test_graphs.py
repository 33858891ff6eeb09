"""Updates as graphs, without a GPU: what is replayed equals what is run, and nothing moves in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from robo_rl.core.action_map import DirectMap
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Replay
from robo_rl.eval.host_reads import HostReads
from robo_rl.nets.optim.graphs import MOST_GRAPHS, WARM_UP, GraphCache, update_graphs
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.update_runner import MOST_TOGETHER, UpdateRunner

T = TypeVar("T")
LANES, OBS = 4, 3
KINDS: dict[str, dict[str, Any]] = {
    "sac": {"auto_alpha": True, "entropy_in_target": True},
    "td3": {"actor": "deterministic", "actor_delay": 2, "target_delay": 2, "grad_clip": 1.0},
    "redq": {"heads": 5, "target_subset": 2, "actor_delay": 3, "n_step": 3},
    "fast_td3": {
        "actor": "deterministic", "critic_loss": "c51", "atoms": 11, "actor_delay": 2, "weight_decay": 0.1
    },
    "fast_sac": {"critic_loss": "c51", "target_reduce": "own", "auto_alpha": True, "actor_delay": 4},
    "hl_gauss": {"critic_loss": "hl_gauss", "return_floor": True},
    "conservative": {"conservative": 1.0, "target_draws": 3},
}  # fmt: skip


class Recording(TorchDispatchMode):
    """A graph without a GPU: operations with the tensors that they got, to be run again on these.

    As in a CUDA graph, results are written to the tensors of the recording, random numbers are new, and
    Python does not run again.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def capture(self, work: Callable[[], T]) -> T:
        kept = [value.clone() for value in PERSISTENT]
        states = [g.get_state() for g in GENERATORS]
        with self:
            result = work()
        for value, before in zip(PERSISTENT, kept, strict=True):  # a capture runs nothing
            value.detach().copy_(before)
        for g, state in zip(GENERATORS, states, strict=True):
            g.set_state(state)
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, old in self.calls:
                new = func(*args, **kwargs)
                for place, value in zip(flat(old), flat(new), strict=True):
                    if place.data_ptr() != value.data_ptr():
                        place.copy_(value)


PERSISTENT: list[Tensor] = []
GENERATORS: list[torch.Generator] = []


def flat(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [tensor for value in values for tensor in flat(value)] if isinstance(values, list | tuple) else []


def runner(kind: str, graphs: GraphCache, device: str = "cpu") -> UpdateRunner:
    """A learner and a full replay, the same in every call. A recording does not see machine code."""
    settings: dict[str, Any] = {"hidden": [16], "batch": 32, "gamma": 0.9} | KINDS[kind]
    cfg = LearnerConfig(**settings)
    rng = generator("graphs", kind, device=device)
    learner = OffPolicyLearner(OBS, DirectMap(2), cfg, rng, passes="torch")
    widths = {"obs": OBS, "next_obs": OBS, "critic_action": 2, "action": 2, "ctx": 0, "next_ctx": 0}
    store, rng = Replay(200, LANES, widths, device=device), torch.Generator().manual_seed(0)
    for step in range(60):  # more than fits: the ring has turned
        over = torch.full((LANES,), step % 7 == 6)
        values = {name: torch.rand(LANES, width, generator=rng) for name, width in widths.items()}
        scalars = {name: torch.rand(LANES, generator=rng) for name in ("reward", "demo")}
        flags = {"terminated": over, "truncated": ~over & over, "cut": ~over & over}
        entry = values | scalars | flags | {"steps": torch.ones(LANES)}
        store.add(Lanes.all(LANES, device), {k: v.to(device) for k, v in entry.items()}, cfg.gamma)
    mix = ReplayMix({"online": store}, {"online": 1.0})
    return UpdateRunner(learner, mix, generator("draws", device=device), graphs)


def persistent(made: UpdateRunner) -> list[Tensor]:
    """What lasts from one update to the next: weights, targets, moments, gradients, multipliers."""
    learner = made.learner
    optimizers = [learner.actor_opt, learner.critics.critic_opt]
    if learner.multipliers.optimizer is not None:
        optimizers.append(learner.multipliers.optimizer)  # type: ignore[arg-type]
    parts = [
        value for net in learner._networks().values() for value in net.state_dict(keep_vars=True).values()
    ]
    parts += [value for optimizer in optimizers for value in optimizer.tensors()]
    parts += [parameter.grad for optimizer in optimizers for parameter in optimizer.parameters]
    return [*parts, learner.multipliers.log_alpha, learner.multipliers.log_norm]


def recorded(kind: str) -> UpdateRunner:
    """A runner whose updates are recorded and replayed."""
    made = runner(kind, GraphCache(Recording))
    PERSISTENT[:], GENERATORS[:] = persistent(made), [made.learner.generator, made.generator]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_replays_equal_runs(kind: str) -> None:
    """Warm-up, capture and replays of several updates: the same bits as one update after another."""
    captured, eager = recorded(kind), runner(kind, GraphCache())
    block = 2 * captured.learner.period
    for _ in range(WARM_UP + 5):
        logs = captured.update(block)
        for _ in range(block):
            expected = eager.update(1)
    assert captured.learner.updates == eager.learner.updates == block * (WARM_UP + 5)
    assert captured.graphs._graphs, "something was captured"
    for found, value in zip(persistent(captured), persistent(eager), strict=True):
        assert torch.equal(found, value)
    assert all(torch.equal(logs[name], value) for name, value in expected.items())
    assert torch.equal(captured.generator.get_state(), eager.generator.get_state())
    assert captured.batch is not None
    assert eager.batch is not None
    assert torch.equal(captured.batch.obs, eager.batch.obs)


@pytest.mark.parametrize("monte_carlo", [True, False])
def test_burn_in_is_replayed_too(monte_carlo: bool) -> None:
    captured, eager = recorded("fast_td3"), runner("fast_td3", GraphCache())
    for _ in range(WARM_UP + 3):
        captured.burn_in(MOST_TOGETHER + 2, monte_carlo)
        for _ in range(MOST_TOGETHER + 2):
            eager.burn_in(1, monte_carlo)
    for found, value in zip(persistent(captured), persistent(eager), strict=True):
        assert torch.equal(found, value)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_lasts_moves_in_memory(kind: str) -> None:
    """A graph keeps addresses: updates, loading, restored weights and a restart write in place."""
    made = runner(kind, GraphCache())
    places = [value.data_ptr() for value in persistent(made)]
    made.update(12)
    saved, weights = made.learner.state_dict(), made.learner.weights()
    made.learner.load_weights(weights)
    made.learner.load_weights(None)
    made.learner.load_state_dict(saved)
    made.mix.load_state_dict(made.mix.state_dict())
    made.burn_in(2, monte_carlo=True)
    made.update(12)
    assert [value.data_ptr() for value in persistent(made)] == places


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_operations_do_not_depend_on_data(kind: str) -> None:
    """Two updates of the same number record the same operations with the same shapes, and read nothing."""
    made = runner(kind, GraphCache())
    made.update(made.learner.period)
    traces = []
    for _ in range(2):
        recording = Recording()
        with HostReads().watching() as found, recording:
            made.update(made.learner.period)
        assert not found.reads, dict(found.reads)
        traces.append([(str(func), [t.shape for t in flat(out)]) for func, _, _, out in recording.calls])
    assert traces[0] == traces[1]


def test_equal_work_is_captured_once_per_key() -> None:
    """Runs that are counted: three warm up, the fourth is captured and replayed, as are all later ones."""
    log: list[str] = []

    class Counting:
        def capture(self, work: Callable[[], T]) -> T:
            log.append("capture")
            return work()

        def replay(self) -> None:
            log.append("replay")

    cache = GraphCache(Counting)
    results = [cache.run("a", lambda: log.append("run") or len(log)) for _ in range(WARM_UP + 2)]  # type: ignore[func-returns-value]
    assert log == ["run"] * WARM_UP + ["capture", "run", "replay", "replay"]
    assert results[-1] == results[-2]
    for key in range(MOST_GRAPHS + 3):
        for _ in range(WARM_UP + 1):
            cache.run(key, lambda: None)
    assert len(cache._graphs) == MOST_GRAPHS, "more graphs would fill the memory: the rest runs as it is"


def test_graphs_are_for_a_gpu() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    made = [update_graphs(*each, ()) for each in ((cpu, "auto"), (gpu, "off"), (gpu, "auto"))]
    assert [graphs._make is None for graphs in made] == [True, True, False]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_cuda_graph_equals_single_operations(kind: str) -> None:
    """On a GPU: the same bits from `graphs=auto` and `graphs=off`."""
    made = []
    for setting in ("auto", "off"):
        alone = runner(kind, GraphCache(), "cuda")
        draws = (alone.learner.generator, alone.generator)
        alone.graphs = update_graphs(torch.device("cuda"), setting, draws)
        for _ in range(WARM_UP + 5):
            alone.update(4)
        made.append(alone)
    for found, value in zip(persistent(made[0]), persistent(made[1]), strict=True):
        assert torch.equal(found, value)
