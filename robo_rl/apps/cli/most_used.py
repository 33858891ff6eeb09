"""Settings that `robo-rl <verb> --help` lists first."""

from __future__ import annotations

# Settings that `--help` lists first, of verbs with many: those that most runs set.
MOST_USED = {
    "train": (
        *(
            "data",
            "learn_from",
            "learn_steps",
            "out",
            "init",
            "steps",
            "batch_size",
            "lr",
            "obs_steps",
            "chunk",
        ),
        *("execute", "process", "net", "seed", "device", "resume", "overwrite"),
    ),
    "finetune": (
        *("out", "base", "method", "demos", "env_steps", "env", "record", "seed", "num_envs", "num_workers"),
        *("device", "eval_every", "eval_episodes", "final_episodes", "logger", "resume", "overwrite"),
    ),
    "fly": (
        *("task", "out", "level", "craft", "randomize", "updates", "method", "speed_m_s", "track", "density"),
        *("engine", "eval_episodes", "seed", "seeds", "video", "resume", "overwrite"),
    ),
    "swarm": (
        *("drones", "density", "out", "also", "craft", "engine", "updates", "worlds", "eval_episodes"),
        *("seed", "seeds", "video", "resume", "overwrite"),
    ),
    "distill": (
        *("teacher", "out", "env", "steps", "rounds", "rollout_steps", "net", "consistency", "num_envs"),
        *("eval_episodes", "seed", "logger", "resume", "overwrite"),
    ),
}
