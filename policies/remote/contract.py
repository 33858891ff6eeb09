"""Contract of a served policy, and its differences from the expected one."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.deploy.bundle import MOST_STEPS, Bundle, check_rates, env_faults
from policies.remote.frames import DTYPES, GarbledError, shown
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec

MOST_ROWS = 4096  # observations of one request
MOST_BYTES = 1 << 28  # arrays of one request
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, ConfigError)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PolicyContract:
    """Contract of a policy that is served; a client that finds another one refuses to use it."""

    name: str
    env: EnvSpec  # `obs` is what the policy reads
    obs_steps: int  # To
    chunk: int  # Tp
    execute: int  # Ta
    noise: float  # scale of the initial noise: 1: N(0, I), 0: zero noise
    normalizer: str  # see `normalizer_id`
    refines: bool  # does `refine` compute anything?
    runtime: str = ""  # what runs the policy, for figures of time

    @property
    def obs_bytes(self) -> int:
        """Bytes of one stacked observation."""
        return self.obs_steps * sum(
            math.prod(spec.shape) * DTYPES[spec.dtype].itemsize for spec in self.env.obs.values()
        )

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk, and of its noise."""
        return self.chunk * self.env.action.dim * DTYPES["float32"].itemsize

    @property
    def most_request_bytes(self) -> int:
        """Largest arrays of a request: at least one observation, at most `MOST_ROWS`."""
        row = self.obs_bytes + self.chunk_bytes
        return max(row, min(MOST_ROWS * row, MOST_BYTES))

    def to_json(self) -> dict[str, Any]:
        horizons = {"obs_steps": self.obs_steps, "chunk": self.chunk, "execute": self.execute}
        return {
            "name": self.name,
            "env": self.env.to_json(),
            "horizons": horizons,
            "noise": self.noise,
            "normalizer": self.normalizer,
            "refines": self.refines,
            "runtime": self.runtime,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PolicyContract:
        """Contract of a server. Raises GarbledError for anything but the output of `to_json`."""
        try:
            env, steps = EnvSpec.from_json(data["env"]), data["horizons"]
            check_rates({"control": env.control_hz})
            made = cls(
                _text(data["name"]),
                env,
                obs_steps=_steps(steps["obs_steps"]),
                chunk=_steps(steps["chunk"]),
                execute=_steps(steps["execute"]),
                noise=_scale(data["noise"]),
                normalizer=_text(data["normalizer"]),
                refines=data["refines"] is True,
                runtime=_text(data["runtime"]),
            )
        except _UNREADABLE as error:
            raise GarbledError(f"its contract cannot be read ({shown(repr(error))})") from error
        if made.execute > made.chunk or (made.normalizer and not _SHA256.fullmatch(made.normalizer)):
            raise GarbledError("its contract holds an impossible horizon or identity of the normaliser")
        check_types(made.env)
        if made.obs_bytes + made.chunk_bytes > MOST_BYTES:
            raise GarbledError(f"one of its observations takes more than {MOST_BYTES} bytes")
        return made

    def faults(self, env: EnvSpec) -> list[str]:
        """Ways in which this environment or robot does not fit the policy."""
        return env_faults(self.env, env)

    def differences(self, expected: PolicyContract) -> list[str]:
        """Ways in which this policy differs from the expected one; names and runtimes may."""
        faults = env_faults(self.env, expected.env)
        if more := sorted(expected.env.obs.keys() - self.env.obs.keys()):
            faults.append(f"it does not read {', '.join(more)}")
        for key in ("obs_steps", "chunk", "execute", "noise"):
            found, wanted = getattr(self, key), getattr(expected, key)
            if found != wanted:
                faults.append(f"{key} is {found}, expected {wanted}")
        if self.normalizer != expected.normalizer:
            faults.append(
                f"its normaliser is {_short(self.normalizer)}, expected {_short(expected.normalizer)}: it "
                "was fitted on other data"
            )
        if self.refines != expected.refines:
            faults.append(f"it {'corrects' if self.refines else 'does not correct'} each action")
        return faults


def normalizer_id(statistics: Mapping[str, tuple[Any, Any]]) -> str:
    """SHA-256 of the statistics: key -> (center, scale), as arrays or lists; empty without statistics."""
    if not statistics:
        return ""
    digest = hashlib.sha256()
    for key, pair in sorted(statistics.items()):
        digest.update(f"{key}\0".encode())
        for values in pair:
            array = np.asarray(values, dtype=DTYPES["float32"])
            digest.update(f"{array.shape}\0".encode() + array.tobytes())
    return digest.hexdigest()


def bundle_contract(bundle: Bundle, runtime: str = "") -> PolicyContract:
    """Contract of the policy in a bundle."""
    statistics = {
        key: (entry["center"], entry["scale"]) for key, entry in bundle.manifest["normalizer"].items()
    }
    return PolicyContract(
        bundle.name,
        bundle.env,
        bundle.obs_steps,
        bundle.chunk,
        bundle.execute,
        noise=0.0 if bundle.noise == "zero" else 1.0,
        normalizer=normalizer_id(statistics),
        refines=bundle.graph(1) is not None,
        runtime=runtime,
    )


def check_types(env: EnvSpec) -> None:
    """Raise GarbledError for an observation of a type that no frame holds."""
    for key, spec in env.obs.items():
        if spec.dtype not in DTYPES:
            raise GarbledError(f"observation '{key}' is {spec.dtype}, frames hold {', '.join(DTYPES)} only")


def in_words(faults: Sequence[str]) -> str:
    return "; ".join(faults)


def _steps(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST_STEPS:
        raise ValueError(f"a horizon is {value!r}, 1 to {MOST_STEPS} steps were expected")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return shown(value)


def _scale(value: object) -> float:
    if type(value) not in (int, float) or not 0.0 <= value <= 1e3:  # type: ignore[operator]
        raise ValueError(f"the scale of the noise is {value!r}")
    return float(value)  # type: ignore[arg-type]


def _short(identity: str) -> str:
    return f"{identity[:12]}…" if identity else "none"
