"""Tasks in scenes as a `VecEnv`, on any engine: one task, one body, one control mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, EnvError
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import Seeds, episode_seeds
from robo_rl.core.shapes import Bool, Float
from robo_rl.core.spec import EnvSpec
from sim.actuators.load import load_actuator
from sim.asset_files import ASSETS
from sim.bodies.protocol import CONTROL_HZ, SUBSTEPS, Body, Drive, Mounts, SceneTask
from sim.engines.changes import check_changes
from sim.engines.mujoco.picture import place_bodies
from sim.engines.protocol import Engine, Physics, RestartsByMask
from sim.engines.scene import Scene, compile_scene
from sim.engines.table import make_engine
from sim.scenes.cameras import make_cameras
from sim.scenes.diverged import dump_diverged
from sim.scenes.instructions import Instructions
from sim.scenes.randomise import RANGES, load_randomise
from sim.scenes.reset_prefetch import ResetPrefetch
from sim.scenes.senses import Senses, to_host
from sim.scenes.task_kernels import Counts, TaskKernels, TaskRules, begin_counts
from sim.tasks.table import TaskOptions, make_body, make_task, suite_of
from sim.vec.device_restarts import DeviceRestarts
from sim.vec.history import place_of, seeds_of
from sim.vec.vec_env import METADATA, check_lane_count, clipped_action, take_seeds

_WORTH_COMPILING = 64  # lanes; with fewer, compiling costs more than it saves
_KEPT = ("_delay", "_goal", "_queue", "_memory", "_episode_seed", "_age", "_held", "_success")


class TaskVecEnv:
    """n worlds of one task; each episode is a function of its seed and its actions only.

    With sparse rewards an episode ends with success, unless `terminate_on_success` says otherwise. Where
    physics diverges (extreme or non-finite speeds) the episode ends as a failure with `info["diverged"]`, and
    its last observation is the last sane one. `step` takes and returns tensors in the host's memory, whatever
    the engine's device, unless `keep_on_device` was called.
    """

    _physics: Physics
    _obs: Obs
    _goal: Float[Tensor, "n g"]
    _memory: Float[Tensor, "n w"]  # of the control mode
    _delay: Tensor  # (n,) steps until an action takes effect
    _queue: Float[Tensor, "n d a"]  # the last actions, newest first
    _episode_seed: Tensor  # (n,) int64
    _age: Tensor  # (n,) steps made
    _held: Tensor  # (n,) steps in a row that counted as solved
    _success: Tensor  # (n,)

    def __init__(self, task: str, num_envs: int, options: TaskOptions | None = None) -> None:
        options = options or TaskOptions()
        check_lane_count(num_envs, 0)
        self.num_envs, self.metadata, self._options = num_envs, METADATA, options
        self.task = make_task(task, options)
        body: Body = make_body(task, self.task, options)
        self._randomise = load_randomise(options.randomise)
        scene = _make_scene(self.task, body, options.actuator)
        check_changes(scene, self._randomise.changes(scene, torch.zeros(1, dtype=torch.long)), 1, RANGES)
        self._engine: Engine = make_engine(options.engine, scene, num_envs, options)
        self._drive: Drive = body.drive(scene, self._engine.physics().qpos)
        cameras = make_cameras(self._engine, options, self._drive.cloud_m)
        self._instructions = Instructions(self.task, cameras, options, self._engine.device)
        self._senses = Senses(
            self._engine, cameras, self._randomise, self.task.obs_parts, options.state, self._instructions
        )
        self.spec = self._make_spec(f"{suite_of(task)}/{task}{options.name_suffix(suite_of(task))}")
        self._starts = ResetPrefetch(self.task, self._drive, self._engine)
        rules = TaskRules(options.reward == "dense", self.spec.max_episode_steps, options.ends_with_success)
        compiled = num_envs >= _WORTH_COMPILING if options.compiled is None else options.compiled
        self._kernels = TaskKernels(self.task, self._drive, self._engine.physics(), rules, compiled=compiled)
        self._seeds: Iterator[int] | None = None
        self._pending: Tensor | None = None
        self._unread: Tensor | None = None  # lanes whose pictures of the next step are not read
        self.device: torch.device = self._engine.device
        self._resident = False
        self._restarts: DeviceRestarts | None = None

    def keep_on_device(self) -> bool:
        self._resident = isinstance(self._engine, RestartsByMask) and self._senses.on_device
        return self._resident

    def _make_spec(self, name: str) -> EnvSpec:
        steps = self._options.max_episode_steps or self.task.max_steps
        return EnvSpec(name, self._senses.specs, self._drive.action, steps, CONTROL_HZ)

    @property
    def wiring(self) -> Any:
        """Columns of the body in the engine's arrays: see `Drive`."""
        return self._drive.wiring

    @property
    def view(self) -> Any:
        """View of the worlds for tasks and experts."""
        return self._drive.view(self._physics, self._goal)

    def script(self) -> Float[Tensor, "n b"]:
        """Command of the task's expert, in [-1, 1]; for an arm, of its tool and fingers."""
        return self._drive.script(self.view)

    def from_script(self, wanted: Float[Tensor, "n b"]) -> Float[Tensor, "n a"]:
        """Action of this control mode for a command of `script`."""
        return self._drive.from_script(wanted, self.view, self._memory)

    def reset(self, seeds: Seeds) -> Obs:
        coming = episode_seeds(seeds, self.num_envs)
        first = take_seeds(coming, self.num_envs)
        self._seeds, self._pending = coming, None
        most_delay, device = self._randomise.action_delay[1], self._engine.device
        self._delay = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        self._obs = self._begin(torch.arange(self.num_envs), first, None)
        self._queue = self._memory.new_zeros(self.num_envs, 1 + most_delay, self.spec.action.dim)
        self._restarts = DeviceRestarts(coming, self.num_envs, device) if self._resident else None
        return self._given(self._obs)

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def skip_pictures(self, unread: Bool[Tensor, " n"]) -> None:
        """See `robo_rl.core.protocols.SkipsPictures`. Call before `step_async`."""
        self._unread = unread

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        if self._seeds is None:
            raise EnvError("step before reset: call reset(seeds) first.")
        if self._restarts is not None:
            self._pending = self._restarts.clipped(action, self.spec).to(self._memory.dtype)
            return
        clipped = torch.from_numpy(clipped_action(action, self.spec, self.num_envs))
        self._pending = clipped.to(self._memory)

    @torch.no_grad()
    def step_wait(self) -> StepResult:
        if self._pending is None or self._seeds is None:
            raise EnvError("step_wait without step_async: there is no step to wait for.")
        before, action = ({} if self._resident else self._engine.save()), self._pending
        self._engine.step(self._servo_targets(self._delayed(action)), SUBSTEPS)
        self._pending = None
        self._physics = self._engine.physics()
        scored = self._kernels.score(self._goal, Counts(self._age, self._held, self._success), self._physics)
        self._age, self._held, self._success = scored.counts
        diverged, success, seed = ~scored.sane, scored.counts.success, self._episode_seed
        ended = scored.terminated | scored.truncated
        final = self._senses.after_step(
            scored.obs, scored.sane, self.view, seed, self._age, self._obs, self._drawn(ended)
        )
        self._obs = final
        if self._restarts is not None:
            self._restarts.note(diverged, self.spec.name)
            self._obs = self._begin_where(ended, self._restarts.seeds.take(ended, seed), final)
        else:
            if bool(diverged.any()):
                dump_diverged(self.spec.name, diverged, seed, self._age, before, action)
            if bool(ended.any()):
                worlds = ended.nonzero()[:, 0]
                self._obs = self._begin(worlds, take_seeds(self._seeds, len(worlds)), final)
        info = {
            "final_obs": final,
            "final_mask": ended,
            "success": success,
            "episode_seed": seed.clone(),
            "next_seed": self._episode_seed.clone(),
            "diverged": diverged,
            **self._instructions.info(seed),
        }
        ends = (scored.reward, scored.terminated, scored.truncated)
        if self._resident:
            return self._given(self._obs), *ends, info | {"final_obs": self._given(final)}
        on_host = {name: value.cpu() for name, value in info.items() if isinstance(value, Tensor)}
        paid, terminated, truncated = (each.cpu() for each in ends)
        return to_host(self._obs), paid, terminated, truncated, on_host | {"final_obs": to_host(final)}

    def _drawn(self, ended: Bool[Tensor, " n"]) -> Sequence[int]:
        """Worlds whose pictures are drawn after this step."""
        unread, self._unread = self._unread, None
        if unread is None:
            return range(self.num_envs)
        return (~unread | ended.cpu()).nonzero()[:, 0].tolist()

    def _given(self, obs: Obs) -> Obs:
        """Copy of observations for the caller to keep, on the device or in the host's memory."""
        return {key: value.clone() for key, value in obs.items()} if self._resident else to_host(obs)

    def _delayed(self, action: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        """Action that takes effect now: an earlier one, or the first of the episode."""
        if self._randomise.action_delay[1] == 0:
            return action
        first = (self._age == 0)[:, None, None]
        queue = torch.where(first, action[:, None], self._queue).roll(1, 1)
        queue[:, 0] = action
        self._queue = queue
        return queue[torch.arange(self.num_envs, device=queue.device), self._delay]

    def _servo_targets(self, action: Float[Tensor, "n a"]) -> Float[Tensor, "n u"]:
        ctrl, self._memory = self._kernels.command(self._memory, action, self._physics)
        return ctrl

    def _begin(self, worlds: Tensor, taken: list[int], before: Obs | None) -> Obs:
        """Start episodes in these worlds; observations of all. before: the last observations."""
        worlds = worlds.to(self._engine.device)
        seeds = torch.tensor(taken, device=worlds.device)
        (start, goal, memory), obs = self._starts.of(taken, self._seeds)
        if self._randomise.changes_physics:
            self._engine.randomise(worlds, self._randomise.changes(self._engine.scene, seeds))
        self._engine.set_state(worlds, start)
        counts = begin_counts(len(worlds), worlds.device)
        fresh = {
            "_goal": goal,
            "_memory": memory,
            "_episode_seed": seeds,
            "_age": counts.age,
            "_held": counts.held,
            "_success": counts.success,
        }
        if self._randomise.action_delay[1]:  # the queue is filled by an episode's first action
            fresh["_delay"] = self._randomise.delays(seeds)
        for name, value in fresh.items():
            kept = value if len(worlds) == self.num_envs else getattr(self, name).index_copy(0, worlds, value)
            setattr(self, name, kept)
        self._physics = self._engine.physics()
        return self._senses.at_start(worlds, obs, self.view, self._episode_seed, before)

    def _begin_where(self, ended: Tensor, seeds: Tensor, before: Obs) -> Obs:
        """`_begin` in the worlds of a mask, by operations of fixed shape. seeds: of all worlds after it."""
        start, goal, memory = self._starts.draw(seeds)
        assert isinstance(self._engine, RestartsByMask)
        if self._randomise.changes_physics:
            self._engine.randomise_where(ended, self._randomise.changes(self._engine.scene, seeds))
        self._engine.set_state_where(ended, start)
        counts = begin_counts(self.num_envs, self.device)
        fresh = {
            "_goal": goal,
            "_memory": memory,
            "_age": counts.age,
            "_held": counts.held,
            "_success": counts.success,
        }
        if self._randomise.action_delay[1]:
            fresh["_delay"] = self._randomise.delays(seeds)
        for name, value in fresh.items():
            old = getattr(self, name)
            setattr(self, name, torch.where(ended.view(-1, *[1] * (old.ndim - 1)), value, old))
        self._episode_seed = seeds
        self._physics = self._engine.physics()
        view = self.view
        obs = self.task.observe(view).to(torch.float32)
        return self._senses.restarted(ended, obs, view, seeds, before)

    def snapshot(self) -> dict[str, Any]:
        """Complete state: copying it is cheaper than simulating up to it again."""
        if self._restarts is not None:
            self._seeds = self._restarts.seeds.synchronise()
        place = place_of(self._seeds)
        kept = {name.removeprefix("_"): getattr(self, name).clone() for name in _KEPT}
        return {
            "env": self.spec.name, "obs": self._obs["state"].clone(), **kept, **self._senses.save(),
            **{f"engine_{key}": value for key, value in self._engine.save().items()},
            "seeds_root": None if place is None else list(place[0]),
            "seeds_count": None if place is None else place[1],
        }  # fmt: skip

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        found = tuple(snapshot["obs"].shape) if "obs" in snapshot else None
        if snapshot.get("env") != self.spec.name or found != (self.num_envs, *self.spec.obs["state"].shape):
            raise CheckpointError(
                f"The snapshot is of {snapshot.get('env')} with observations {found}, this environment is "
                f"{self.spec.name} with {self.num_envs} parallel environments. Make an environment "
                "that fits it."
            )
        device = self._engine.device  # a snapshot from a file lies in the host's memory
        for name in _KEPT:
            setattr(self, name, snapshot[name.removeprefix("_")].to(device, copy=True))
        saved = {
            key.removeprefix("engine_"): value for key, value in snapshot.items() if key.startswith("engine_")
        }
        if self._randomise.changes_physics:
            changes = self._randomise.changes(self._engine.scene, self._episode_seed)
            self._engine.randomise(torch.arange(self.num_envs, device=device), changes)
        self._engine.load(saved)
        self._physics = self._engine.physics()
        self._seeds = seeds or seeds_of(snapshot) or self._seeds
        self._pending = None
        if self._resident and self._seeds is not None:
            self._restarts = DeviceRestarts(self._seeds, self.num_envs, device)
        obs = self._senses.load(
            snapshot, snapshot["obs"].to(device, copy=True), self.view, self._episode_seed
        )
        self._obs = obs
        return self._given(obs)

    def render(self, lane: int = 0) -> Tensor:
        size, kind = self._options.render_size, "pretty" if self._options.pretty else "rgb"
        visuals = None if self._seeds is None else self._senses.visuals_of(int(self._episode_seed[lane]))
        return self._engine.render(lane, self._engine.scene.video_camera, size, size, kind, visuals)

    @property
    def model(self) -> Any:
        """mujoco.MjModel of the scene, not to be changed: for viewers."""
        return self._engine.scene.model

    def pose_bodies(self, data: Any, lane: int = 0) -> None:
        """Set the bodies of `data` (mujoco.MjData) to those of a lane."""
        place_bodies(self._engine.scene, self._physics, lane, data)

    def close(self) -> None:
        self._engine.close()


def _make_scene(task: SceneTask, body: Body, actuator: str) -> Scene:
    """The task's scene with the body in it, and the actuator model in its servos."""
    model = load_actuator(actuator)

    def edit(spec: Any) -> None:
        if isinstance(body, Mounts):
            body.mount(spec)
        task.edit(spec)
        if model is not None:
            model.add_friction(spec)

    scene = compile_scene(ASSETS / task.scene, body.path, edit)
    return scene if model is None else replace(scene, motors=model.motors(scene.model))


def make_task_env(task: str, num_envs: int, **options: Any) -> TaskVecEnv:
    """Environment by options of `sim.tasks.table.TaskOptions`, as in a name."""
    return TaskVecEnv(task, num_envs, TaskOptions(**options))
