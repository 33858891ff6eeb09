"""Reasons for which a safety filter limits, drops, holds, stops or lands, each with its message.

A test compares the table in docs/safety.md with this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """Reactions of a filter, mildest first."""

    LIMITED = "limited"  # the command is changed to stay within the limit
    DROPPED = "dropped"  # the message is ignored as a whole
    REFUSED = "refused"  # arming is refused; nothing moves
    HOLD = "hold"  # brake and hold position; resumes once the cause is gone, stops if it lasts
    STOP = "stop"  # brake, send the final position, fall silent; only a new arming resumes
    LAND = "land"  # quadcopter: the filter lands the craft; policy commands are ignored
    CUT = "cut"  # quadcopter: motors off


@dataclass(frozen=True, slots=True)
class Rule:
    """Effect of a reason, its message for the terminal, and the filters (arm, quad) that use it."""

    effect: Effect
    sentence: str
    arm: bool = True
    quad: bool = True


class Reason(Enum):
    """All reasons of both filters."""

    # Faults of a command.
    NOT_FINITE = Rule(Effect.DROPPED, "the command contains NaN or an infinite value")
    WRONG_SHAPE = Rule(
        Effect.DROPPED,
        "the command has the wrong shape: an arm takes one waypoint with all joints, a craft 4 values",
    )
    WRONG_JOINTS = Rule(
        Effect.DROPPED,
        "the command names other joints, motors or rates than the robot has: use those of its description",
    )
    OUT_OF_ORDER = Rule(
        Effect.DROPPED,
        "the command's stamp is not later than that of an accepted one: let stamps grow, or leave all 0; "
        "arm again after a clock was set back",
    )
    OUTRANKED = Rule(Effect.DROPPED, "a human is in control, so the policy's command is ignored", quad=False)
    NOT_INTERVENING = Rule(
        Effect.DROPPED,
        "teleoperation sends commands but has not taken over control: publish true on teleop/intervention",
        quad=False,
    )
    NOT_ARMED = Rule(Effect.DROPPED, "the filter is not armed")
    JUMP_AT_START = Rule(
        Effect.DROPPED,
        "the first command since arming, a takeover or a pause is further than start_jump_rad from the arm: "
        "begin where the arm is",
        quad=False,
    )
    # Limits applied to a command.
    POSITION = Rule(Effect.LIMITED, "the command exceeds a joint's position range", quad=False)
    VELOCITY = Rule(Effect.LIMITED, "the command exceeds a joint's velocity limit", quad=False)
    ACCELERATION = Rule(Effect.LIMITED, "the command exceeds a joint's acceleration limit", quad=False)
    STEP = Rule(Effect.LIMITED, "the command is too far from the measured position", quad=False)
    PART_HELD = Rule(
        Effect.LIMITED,
        "one of the two senders of shared control sends no command: its joints hold, the others move",
        quad=False,
    )
    WORKSPACE = Rule(Effect.LIMITED, "the command leads out of the workspace", quad=False)
    BODY_RATE = Rule(Effect.LIMITED, "the command exceeds the body rate of the envelope", arm=False)
    THRUST = Rule(Effect.LIMITED, "the command is outside the range of thrust", arm=False)
    # Faults of the robot's state.
    BAD_STATE = Rule(
        Effect.DROPPED,
        "the state is not finite, lacks a joint, uses a wrong frame, or is outside the possible range",
    )
    TILT_UNCONFIRMED = Rule(
        Effect.DROPPED,
        "the state is tilted beyond recovery; three in a row, or two over 50 ms, are believed",
        arm=False,
    )
    STATE_JUMP = Rule(Effect.STOP, "the state changed by more than the robot can move", quad=False)
    # Causes of a hold of an arm, which becomes a stop if it lasts.
    WAITING = Rule(Effect.HOLD, "no command has been accepted yet", quad=False)
    HOLD_REQUESTED = Rule(
        Effect.HOLD,
        "the sender of commands asked for a hold, as action_head does without a policy",
        quad=False,
    )
    STALE_COMMAND = Rule(Effect.HOLD, "no new command for 2 periods", quad=False)
    STALE_STATE = Rule(Effect.HOLD, "no new state for 3 periods", quad=False)
    # Causes of an immediate stop of an arm.
    EMERGENCY = Rule(Effect.STOP, "the emergency stop was pressed", quad=False)
    EMERGENCY_UNHEARD = Rule(
        Effect.STOP,
        "a publisher of estop ended, none of its messages had arrived: it may have pressed the stop",
        quad=False,
    )
    SECOND_PUBLISHER = Rule(
        Effect.STOP, "a topic that moves the robot has a second publisher: end one of them", quad=False
    )
    CLOCK = Rule(Effect.STOP, "the clock ran backwards or is not a finite number", quad=False)
    REQUESTED = Rule(Effect.STOP, "a stop was requested", quad=False)
    SHUTDOWN = Rule(Effect.STOP, "the program is ending", quad=False)
    # Causes of a hold of a quadcopter: it stays level, then lands.
    LATE_COMMAND = Rule(Effect.HOLD, "no new command for 2.5 periods; the craft hovers", arm=False)
    LATE_STATE = Rule(Effect.HOLD, "no new state for 3 periods; the craft descends slowly", arm=False)
    # Causes of a landing, or of switching the motors off.
    LAND_REQUESTED = Rule(Effect.LAND, "a landing was requested", arm=False)
    LAND_SHUTDOWN = Rule(Effect.LAND, "the program is ending; the craft lands", arm=False)
    FLIGHT_EMERGENCY_UNHEARD = Rule(
        Effect.LAND,
        "a publisher of estop ended, and none of its messages had arrived; the craft lands",
        arm=False,
    )
    FLIGHT_SECOND_PUBLISHER = Rule(
        Effect.LAND, "a topic that moves the craft has a second publisher: end one of them", arm=False
    )
    FLIGHT_CLOCK = Rule(
        Effect.LAND, "the clock ran backwards or is not a finite number; the craft lands", arm=False
    )
    NO_FLIGHT_STATE = Rule(
        Effect.LAND, "no new state for longer than the craft may hold its position", arm=False
    )
    NO_COMMAND = Rule(
        Effect.LAND, "no new command for longer than the craft may hold its position", arm=False
    )
    TILT = Rule(Effect.LAND, "the tilt exceeds the envelope", arm=False)
    FAST_ROTATION = Rule(Effect.LAND, "the body rate exceeds the envelope", arm=False)
    SPEED = Rule(Effect.LAND, "the speed exceeds the envelope", arm=False)
    FENCE = Rule(Effect.LAND, "the craft left the geofence", arm=False)
    LANDED = Rule(Effect.CUT, "the craft is on the ground", arm=False)
    UPSIDE_DOWN = Rule(Effect.CUT, "the craft is tilted too far to recover", arm=False)
    KILLED = Rule(Effect.CUT, "the emergency stop was pressed in flight", arm=False)
    BLIND = Rule(Effect.CUT, "no state for longer than the craft may fly without one", arm=False)
    # Causes for which arming is refused.
    EMERGENCY_LATCHED = Rule(Effect.REFUSED, "the emergency stop is still pressed: release it, then arm")
    TWO_PUBLISHERS = Rule(
        Effect.REFUSED, "a topic that moves the robot has two publishers: end one, then arm"
    )
    NO_STATE = Rule(Effect.REFUSED, "no fresh state of the robot has arrived")
    STOPPING = Rule(Effect.REFUSED, "the robot is still stopping: wait until it is at rest")

    @property
    def effect(self) -> Effect:
        effect: Effect = self.value.effect
        return effect

    @property
    def sentence(self) -> str:
        sentence: str = self.value.sentence
        return sentence


def in_words(counts: Mapping[Reason, int]) -> str:
    """Counts of what a filter did, mildest effect first."""
    return interventions(counts) or "passed every command unchanged"


def interventions(counts: Mapping[Reason, int]) -> str:
    """Counts of what a filter did; empty where it did nothing but wait for a command or end."""
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
    """Sentence on how a filter ends and what it did until then."""
    did = interventions(counts)
    return f"{ends}; until then {did}" if did else ends
