"""Everything that a safety filter can find wrong, what it then does, and the sentence it says.

docs/safety.md is checked against this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What a reason leads to, mildest first."""

    LIMITED = "limited"  # the command is changed until it is allowed
    DROPPED = "dropped"  # the message is ignored as a whole
    REFUSED = "refused"  # the request is not granted; nothing moves
    HOLD = "hold"  # brake and hold position; goes on by itself once the cause is gone, stops when it lasts
    STOP = "stop"  # brake, send the stop, fall silent; only a new arming goes on
    LAND = "land"  # quadcopter: the filter lands by itself; the policy is out
    CUT = "cut"  # quadcopter: motors off


@dataclass(frozen=True, slots=True)
class Rule:
    """effect: what happens. sentence: what the terminal says. arm, quad: which filters know the reason."""

    effect: Effect
    sentence: str
    arm: bool = True
    quad: bool = True


class Reason(Enum):
    """The table."""

    # What is wrong with a command.
    NOT_FINITE = Rule(Effect.DROPPED, "the command holds a value that is not a finite number")
    WRONG_SHAPE = Rule(Effect.DROPPED, "the command has the wrong shape")
    WRONG_JOINTS = Rule(Effect.DROPPED, "the command names other joints than the robot's", quad=False)
    OLD_EPOCH = Rule(Effect.DROPPED, "the command is from before the last reset of its sender")
    OUT_OF_ORDER = Rule(Effect.DROPPED, "the command repeats or precedes one that was already taken")
    OUTRANKED = Rule(Effect.DROPPED, "a human is in command, so the policy is not heard", quad=False)
    NOT_INTERVENING = Rule(
        Effect.DROPPED, "teleoperation sends commands without having taken over", quad=False
    )
    NOT_ARMED = Rule(Effect.DROPPED, "the filter is not armed")
    JUMP_AT_START = Rule(Effect.DROPPED, "the first command is too far from where the robot is", quad=False)
    # What is changed about a command.
    POSITION = Rule(Effect.LIMITED, "the command is beyond a joint's range", quad=False)
    VELOCITY = Rule(Effect.LIMITED, "the command is faster than a joint may be", quad=False)
    ACCELERATION = Rule(
        Effect.LIMITED, "the command speeds up or slows down faster than a joint may", quad=False
    )
    STEP = Rule(Effect.LIMITED, "the command is too far from the measured position", quad=False)
    WORKSPACE = Rule(Effect.LIMITED, "the command leads out of the workspace", quad=False)
    BODY_RATE = Rule(Effect.LIMITED, "the command turns faster than the envelope allows", arm=False)
    THRUST = Rule(Effect.LIMITED, "the command asks for more thrust than there is, or less", arm=False)
    # What is wrong with the robot's state.
    BAD_STATE = Rule(
        Effect.DROPPED,
        "the state is not finite, lacks a joint, is in a wrong frame, or is where the robot cannot be",
    )
    STATE_JUMP = Rule(Effect.DROPPED, "the state jumped further than the robot can move", quad=False)
    # What makes an arm hold, then stop.
    WAITING = Rule(Effect.HOLD, "no command has come yet", quad=False)
    STALE_COMMAND = Rule(Effect.HOLD, "no new command for 2 periods", quad=False)
    STALE_STATE = Rule(Effect.HOLD, "no new state for 3 periods", quad=False)
    # What stops at once.
    EMERGENCY = Rule(Effect.STOP, "the emergency stop was pressed", quad=False)
    CLOCK = Rule(Effect.STOP, "the clock ran backwards or is not a number", quad=False)
    REQUESTED = Rule(Effect.STOP, "somebody asked for a stop", quad=False)
    SHUTDOWN = Rule(Effect.STOP, "the program ends", quad=False)
    # What makes a quadcopter hold: it stays level where it is, then lands.
    LATE_COMMAND = Rule(Effect.HOLD, "no new command for 2 periods, so the craft hovers", arm=False)
    LATE_STATE = Rule(Effect.HOLD, "no new state for 3 periods, so the craft sinks slowly", arm=False)
    # What ends a flight.
    LAND_REQUESTED = Rule(Effect.LAND, "somebody asked for a landing", arm=False)
    LAND_SHUTDOWN = Rule(Effect.LAND, "the program ends, so the craft lands", arm=False)
    FLIGHT_CLOCK = Rule(Effect.LAND, "the clock of the flight ran backwards or is not a number", arm=False)
    NO_FLIGHT_STATE = Rule(Effect.LAND, "no new state of the craft, for longer than it may hold", arm=False)
    NO_COMMAND = Rule(Effect.LAND, "no new command, for longer than the craft may hold", arm=False)
    TILT = Rule(Effect.LAND, "the craft tilts beyond its envelope", arm=False)
    FAST_ROTATION = Rule(Effect.LAND, "the craft turns faster than its envelope allows", arm=False)
    SPEED = Rule(Effect.LAND, "the craft flies faster than its envelope allows", arm=False)
    FENCE = Rule(Effect.LAND, "the craft left the geofence", arm=False)
    LANDED = Rule(Effect.CUT, "the craft is on the ground", arm=False)
    UPSIDE_DOWN = Rule(Effect.CUT, "the craft tilts so far that no thrust brings it back", arm=False)
    KILLED = Rule(Effect.CUT, "the emergency stop was pressed in flight", arm=False)
    BLIND = Rule(
        Effect.CUT, "the craft does not know where it is, for longer than it may fly blind", arm=False
    )
    # Why arming is refused.
    EMERGENCY_LATCHED = Rule(Effect.REFUSED, "the emergency stop is still pressed: release it, then arm")
    NO_STATE = Rule(Effect.REFUSED, "no fresh state of the robot has come")
    STOPPING = Rule(Effect.REFUSED, "the robot is still stopping: wait until it stands")

    @property
    def effect(self) -> Effect:
        effect: Effect = self.value.effect
        return effect

    @property
    def sentence(self) -> str:
        sentence: str = self.value.sentence
        return sentence


def in_words(counts: Mapping[Reason, int]) -> str:
    """What a filter did, mildest first."""
    return felt(counts) or "passed every command as it was"


def felt(counts: Mapping[Reason, int]) -> str:
    """The same, empty where it did nothing; waiting for the first command and ending are no interventions."""
    quiet = (Reason.WAITING, Reason.SHUTDOWN, Reason.LAND_SHUTDOWN, Reason.NOT_ARMED, Reason.NO_STATE)
    by_effect: dict[Effect, Counter[str]] = {}
    for reason, count in counts.items():
        if reason not in quiet:
            by_effect.setdefault(reason.effect, Counter())[reason.name.lower()] += count
    return "; ".join(
        f"{effect.value} " + ", ".join(f"{n} {name}" for name, n in by_effect[effect].most_common())
        for effect in Effect
        if effect in by_effect
    )


def last_account(ends: str, counts: Mapping[Reason, int]) -> str:
    """How a filter ends, and what it did until then."""
    did = felt(counts)
    return f"{ends}; until then {did}" if did else ends
