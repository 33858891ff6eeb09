"""Hover by what a camera sees: pictures and inertial sensors to a pose and a velocity, those to a state teacher.

    z_i = net(picture_i)                                       at three times, the same network
    (p, v, psi) = head(z_1 z_2 z_3, tilts then and now, rates, last actions, age)
    action = teacher(p, R(psi, tilt), v, rates, last actions)

The teacher is frozen: what is learned is where one is, with exact labels from the simulator. Tilt comes from the
inertial unit, which a craft has; position, velocity and heading come from the pictures alone.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from policies.flight import FlightPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import EnvSpec

IMAGE, STATE = "image.down", "state"
FRAMES = 3  # pictures of different ages, the channels of one image, newest first
ESTIMATE = 8  # position 3 [m], velocity 3 [m/s], cos and sin of the heading
TILT, RATES = slice(0, 3), slice(3, 6)  # of `state`; behind them the last actions, tilts at the pictures, age
_VELOCITY = 0.3  # m/s: what the head calls 1
_POSITION = 0.3  # m


class FrameNet(nn.Module):
    """One grey picture (b, 1, h, w) in 0 ... 1 -> (b, features)."""

    def __init__(self, px: int, width: int, features: int) -> None:
        super().__init__()
        sizes = ((1, width, 5), (width, 2 * width, 3), (2 * width, 2 * width, 3))
        layers = [nn.Conv2d(i, o, k, stride=2, padding=k // 2) for i, o, k in sizes]
        self.layers = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Flatten())
        side = px
        for _ in sizes:
            side = (side + 1) // 2
        self.project = nn.Linear(2 * width * side * side, features)

    def forward(self, picture: Float[Tensor, "b 1 h w"]) -> Float[Tensor, "b f"]:
        # Brightness and contrast of a picture say nothing about the pose.
        mean, std = picture.mean((2, 3), keepdim=True), picture.std((2, 3), keepdim=True)
        out: Tensor = torch.tanh(self.project(self.layers((picture - mean) / (std + 0.05))))
        return out


class VisionPolicy(nn.Module):
    """One action at a time from `image.down` (px, px, 3) uint8 and `state`; deterministic, its noise is ignored."""

    kind = "vision"
    obs_steps = chunk = execute = 1

    def __init__(
        self, env: EnvSpec, teacher: FlightPolicy, width: int = 12, features: int = 48, hidden: int = 96
    ) -> None:
        super().__init__()
        if set(env.obs) != {IMAGE, STATE} or len(env.obs[IMAGE].shape) != 3 or env.obs[IMAGE].shape[2] != FRAMES:
            raise ConfigError(f"A vision policy sees '{IMAGE}' (h, w, {FRAMES}) and '{STATE}', found {env.obs}.")
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        self.sizes = {"width": width, "features": features, "hidden": hidden}
        self.teacher = teacher.requires_grad_(False)
        self.history = teacher.obs_spec[STATE].shape[0] - 18
        rows = env.obs[STATE].shape[0]
        if self.history < 0 or rows != 6 + self.history + 3 * FRAMES + 1:
            raise ConfigError(f"'{STATE}' has {rows} numbers; this teacher asks for {16 + self.history}, no integral.")
        self.net = FrameNet(env.obs[IMAGE].shape[0], width, features)
        self.head = nn.Sequential(
            nn.Linear(FRAMES * features + rows, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, ESTIMATE),
        )  # fmt: skip

    def frames(self, image: UInt8[Tensor, "b h w c"]) -> Float[Tensor, "b cf"]:
        """Features of all pictures of an image, side by side."""
        grey = image.permute(0, 3, 1, 2).float() / 255.0
        return torch.cat([self.net(grey[:, i : i + 1]) for i in range(FRAMES)], dim=1)

    def estimate(self, frames: Float[Tensor, "b cf"], state: Float[Tensor, "b s"]) -> Float[Tensor, "b 8"]:
        """Position [m], velocity [m/s], cos and sin of the heading, not of length 1."""
        out = self.head(torch.cat([frames, state], dim=1))
        return torch.cat([out[:, 0:3] * _POSITION, out[:, 3:6] * _VELOCITY, out[:, 6:8]], dim=1)

    def act(self, estimate: Float[Tensor, "b 8"], state: Float[Tensor, "b s"]) -> Float[Tensor, "b a"]:
        """What the teacher does in the state that is believed in."""
        believed = [estimate[:, 0:3], attitude(state[:, TILT], estimate[:, 6:8]), estimate[:, 3:6], state[:, RATES]]
        seen = torch.cat([*believed, state[:, 6 : 6 + self.history]], dim=1)
        action: Tensor = self.teacher.sample_from(seen * self.teacher.scale, torch.zeros(1))[:, 0]
        return action

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return torch.cat([self.frames(obs[IMAGE].flatten(0, 1)), obs[STATE].flatten(0, 1)], dim=1)

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        split = FRAMES * self.sizes["features"]
        frames, state = features[:, :split], features[:, split:]
        return self.act(self.estimate(frames, state), state).unsqueeze(1) + 0.0 * noise

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        return {"env": self.env.to_json(), "teacher": self.teacher.config(), **self.sizes}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> VisionPolicy:
        sizes = {name: int(data[name]) for name in ("width", "features", "hidden")}
        return cls(EnvSpec.from_json(data["env"]), FlightPolicy.from_config(data["teacher"]), **sizes)


def attitude(up: Float[Tensor, "b 3"], heading: Float[Tensor, "b 2"]) -> Float[Tensor, "b 9"]:
    """Rotation matrix, body -> world, row by row, from what is up in body axes and the heading (cos, sin).

    R = R_z(heading) R_y(pitch) R_x(roll), whose last row is `up`: sin pitch = -up_x, tan roll = up_y / up_z.
    """
    up = up / up.norm(dim=1, keepdim=True).clamp(min=1e-6)
    c, s = (heading / heading.norm(dim=1, keepdim=True).clamp(min=1e-6)).unbind(1)
    x, y, z = up.unbind(1)
    flat = torch.sqrt(y * y + z * z + 1e-12)
    sr, cr, zero = y / flat, z / flat, torch.zeros_like(x)
    ahead, left = torch.stack([flat, -x * sr, -x * cr], 1), torch.stack([zero, cr, -sr], 1)
    c, s = c.unsqueeze(1), s.unsqueeze(1)
    return torch.cat([c * ahead - s * left, s * ahead + c * left, up], dim=1)
