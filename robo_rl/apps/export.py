"""`robo-rl export`: export a policy as a bundle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from policies.checkpoint import load_policy, read_policy_json
from policies.deploy.bundle import MANIFEST, Bundle, Noise
from policies.deploy.bundle_writer import check_bundle, write_bundle
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from policies.vla.packed import has_prefix
from robo_rl.conf.schema import ExportConfig
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.commands import command
from robo_rl.core.text.missing_rate import missing_rate
from robo_rl.runs.loaded_policy import find_policy, trained_env_spec
from robo_rl.runs.outputs import check_new
from robo_rl.runs.success_note import read_success_note
from sim.registry import envelope_in


def main(config: ExportConfig) -> int:
    """Export, and print the contents of the bundle."""
    bundle, noise = write(config, say=partial(print, flush=True))
    parity = max(graph["parity"] for graph in bundle.manifest["graphs"])
    print(
        f"Bundle: {config.out}, for {bundle.env.name} at {bundle.env.control_hz:g} Hz; ONNX differs from "
        f"torch by {parity:.1g}"
    )
    if rate := missing_rate(bundle.env.name, bundle.env.control_hz):
        print(f"        {rate}")
    if bundle.prefix is not None:
        cameras = ", ".join(bundle.manifest["prefix"]["cameras"])
        print(f"        prefix of {cameras} and the instruction; head at {bundle.env.control_hz:g} Hz")
    if bundle.env.name.partition(":")[0] == "quad/swarm":  # no environment by name: no `evaluate`, no `run`
        print(f"Next:   {command('transfer', bundle=config.out)}")
        return 0
    if bundle.manifest["measured"] is None and bundle.env.simulated:
        folder, scale = find_policy(config.policy), 0 if noise == "zero" else 1
        noisy = takes_noise(load_policy(folder))
        words = f" with {noise} noise" if noisy else ""
        again = command("evaluate", policy=folder, noise=scale if noisy else None)
        print(f"        its success{words} is unknown; to measure it: {again}, then export")
    verb, robot = ("run", None) if bundle.env.simulated else ("contract", "<its description>")
    print(f"Next:   {command(verb, bundle=config.out, robot=robot)}")
    return 0


def write(config: ExportConfig, say: Callable[[str], None] | None = None) -> tuple[Bundle, Noise]:
    """Write the bundle, with its graph compared with torch; returns the bundle and its kind of noise.

    say: gets a sentence before work of a minute.
    """
    folder, out = find_policy(config.policy), Path(config.out)
    if (folder / MANIFEST).is_file():
        raise ConfigError(f"{folder} is a bundle already. Give the policy folder of its export.")
    data, measured = read_policy_json(folder), read_success_note(folder)
    noise = noise_mode(config.noise, measured, data["train"])
    policy = load_policy(folder)
    check_bundle(out, policy, config.instruction)
    check_new("out", config.out)
    if say is not None and has_prefix(policy):
        time = "about a minute" if memory_shape(policy) is None else "several minutes"
        say(f"Writing the graphs of prefix and head of {folder}: {time} of one core.")
    same = measured is None or measured["noise"] == (0.0 if noise == "zero" else 1.0)
    if not same and takes_noise(policy):
        measured = None  # measured with the other noise, so not valid for this bundle
    env = trained_env_spec(folder)
    bundle = write_bundle(
        out,
        policy,
        env,
        name=config.name or out.resolve().name,
        noise=noise,
        training=data["train"],
        measured=measured,
        instruction=config.instruction,
        envelope=envelope_in(env.name),
    )
    return bundle, noise


def takes_noise(policy: SavedPolicy) -> bool:
    """False for a policy learned from scratch (SAC, TD3, ...), whose actor sees the observation alone."""
    return not (isinstance(policy, DirectPolicy) and policy.actor is not None)


def noise_mode(given: str | None, measured: dict[str, Any] | None, trained: dict[str, Any]) -> Noise:
    """Noise of the bundle: `given`, or that of the last evaluation, or that of training.

    Raises ConfigError for a scale other than 0 and 1, which bundles do not support.
    """
    if given not in (None, "gaussian", "zero"):
        raise ConfigError(f"noise={given} cannot be used, expected: gaussian | zero, or none.")
    if given is None:
        scale = trained.get("noise", 1.0) if measured is None else measured["noise"]
        if scale not in (0.0, 1.0):
            raise ConfigError(
                f"This policy was last run with its noise scaled by {scale:g}, but a bundle has zero noise "
                "or N(0, I). Choose by noise=zero or noise=gaussian."
            )
        return "zero" if scale == 0.0 else "gaussian"
    return cast("Noise", given)
