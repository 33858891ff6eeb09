"""Messages that the page sends, checked by schema; everything else is refused with a sentence."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from robo_rl.core.errors import ConfigError

LONGEST = 16_384  # bytes of a message; an instruction of 10,000 characters still gets its own answer
Number = Annotated[int, Field(ge=0)]
Place = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]  # metres
Share = Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DriveRequest(_Request):
    """Input of the operator, sent while a key, a drag or a gamepad's switch is held."""

    kind: Literal["drive"]
    mode: Literal["tool", "joints"]
    values: list[Share] = Field(max_length=32)
    sent_ms: float = Field(default=0.0, allow_inf_nan=False)  # clock of the page, echoed to it


class PoseRequest(_Request):
    """Pose of a tracked hand in WebXR's frame, as `hardware.teleop.pose_stream` describes it."""

    kind: Literal["pose"]
    seq: Number
    clutch: bool
    position_m: list[Place] = Field(min_length=3, max_length=3)
    quat_xyzw: list[Share] = Field(min_length=4, max_length=4)
    gripper: float | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False)
    gripper_toggle: bool = False
    sent_ms: float = Field(default=0.0, allow_inf_nan=False)  # clock of the page, echoed to it


class HandRequest(_Request):
    """How a tracked hand is followed: metres of the tool per metre, and where the operator looks."""

    kind: Literal["hand"]
    scale: float = Field(ge=0.05, le=3.0, allow_inf_nan=False)
    yaw_rad: float = Field(ge=-3.2, le=3.2, allow_inf_nan=False)


class PlainRequest(_Request):
    """A request without a value."""

    kind: Literal[
        "release", "arm", "stop", "reset", "start", "pause", "resume", "end", "discard", "again", "train",
        "take_over", "let_run", "stop_training", "undo", "abandon",
    ]  # fmt: skip


class EstopRequest(_Request):
    """The emergency stop, pressed or released."""

    kind: Literal["estop"]
    on: bool


class SaveRequest(_Request):
    """Save the episode; null: without a label."""

    kind: Literal["save"]
    success: bool | None


class MarkRequest(_Request):
    """A reward for the frame that is being recorded."""

    kind: Literal["mark"]
    reward: Share


class InstructRequest(_Request):
    """The instruction in words."""

    kind: Literal["instruct"]
    text: str


class SpeedRequest(_Request):
    """Share of the full driving speed."""

    kind: Literal["speed"]
    share: float = Field(ge=0.05, le=1.0, allow_inf_nan=False)


class PolicyRequest(_Request):
    """Load the bundle of a policy; empty: none."""

    kind: Literal["policy"]
    bundle: str = Field(max_length=4096)


class DeleteRequest(_Request):
    """Delete committed episodes."""

    kind: Literal["delete"]
    episodes: list[Number] = Field(min_length=1, max_length=10_000)


class RelabelRequest(_Request):
    """Change the label or the instruction of committed episodes."""

    kind: Literal["relabel"]
    episodes: list[Number] = Field(min_length=1, max_length=10_000)
    success: bool | Literal["keep"] | None = "keep"
    text: str | None = None


class ControlsRequest(_Request):
    """Who drives: ask for the controls, hand them over, keep them, or take them while nobody has them."""

    kind: Literal["ask", "hand_over", "keep"]


Request = (
    DriveRequest
    | PoseRequest
    | HandRequest
    | PlainRequest
    | EstopRequest
    | SaveRequest
    | MarkRequest
    | InstructRequest
    | SpeedRequest
    | PolicyRequest
    | DeleteRequest
    | RelabelRequest
    | ControlsRequest
)
_ADAPTER: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def parse_request(text: str) -> Request:
    """Request of a JSON text. Raises ConfigError for any other text."""
    if len(text) > LONGEST:
        raise ConfigError(f"A message of {len(text):,} characters came; at most {LONGEST:,} were expected.")
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the message"
        raise ConfigError(f"A message was refused: {where}: {first['msg']}.") from error
