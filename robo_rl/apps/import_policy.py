"""`robo-rl import-policy`: a checkpoint of LeRobot as a policy folder of our own classes."""

from __future__ import annotations

from pathlib import Path

from policies.checkpoint import save_policy
from policies.imported.checkpoint import ACTION, LerobotCheckpoint, read_checkpoint
from policies.imported.contract import imported_env, observation_keys
from policies.imported.diffusion import import_diffusion, native_fault
from robo_rl.conf.schema import ImportPolicyConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.provenance import commit
from robo_rl.core.text.commands import command
from sim.registry import make_env


def main(config: ImportPolicyConfig) -> int:
    """Import, and print what was found."""
    out = Path(config.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"out={out} exists. Choose another folder, or delete it first.")
    read = read_checkpoint(Path(config.source))
    if fault := native_fault(read):
        raise ConfigError(f"{read.folder} cannot be imported: {fault}. {elsewhere(read)}")
    spec = None if config.env is None else make_env(config.env, 1).spec
    keys = observation_keys(read, config.keys)
    env = imported_env(read, keys, spec, config.rate_hz)
    policy = import_diffusion(read, env, keys, config.steps)
    save_policy(out, policy, {"imported": str(read.folder), "of": "lerobot", "commit": commit()})
    print(
        f"{out}: diffusion policy of {env.name}, {sum(p.numel() for p in policy.parameters()):,} parameters"
    )
    for key, feature in keys.items():
        unit = env.obs[key]
        print(f"  {key} <- {feature}: {unit.dtype} {unit.shape}, normalised by {read.mode(feature)}")
    print(f"  action <- {ACTION}: {env.action.dim} numbers, normalised by {read.mode(ACTION)}")
    print(f"Next:   {command('evaluate' if spec else 'serve', policy=out)}")
    return 0


def elsewhere(read: LerobotCheckpoint) -> str:
    """What to do with a checkpoint that LeRobot itself must run."""
    python = "<python of an environment with lerobot>"
    return f"LeRobot can run it: robo-rl serve policy={read.folder} python={python}"
