"""Motors are armed once per connection: for any order of events, nobody's disarming is undone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.quads.arming import ArmedMotors
from hardware.quads.px4.offboard import OffboardStream
from robo_rl.core.errors import DriverError

STEP_S = 0.3
EVENTS = st.sampled_from(["offboard", "follows", "disarmed", "off", "nothing"])


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.booleans(), st.lists(EVENTS, max_size=40))
def test_px4_is_never_armed_twice(arm: bool, events: list[str]) -> None:
    """follows: PX4 obeys the last request; disarmed: by somebody else; off: a landing ends."""
    stream, armed, offboard, were_armed, request = OffboardStream("the PX4", arm), False, False, False, None
    for step, event in enumerate(events):
        offboard = offboard or event == "offboard"
        armed = (armed or (event == "follows" and request == "arm")) and event != "disarmed"
        were_armed = were_armed or armed
        must_refuse = were_armed and not armed and event != "off"
        try:
            stream.motors.check(armed, event == "off")
            assert not must_refuse
        except DriverError:
            assert must_refuse
            continue
        stream.on_setpoint(STEP_S * step, event == "off")
        try:
            request = stream.next_request(STEP_S * step, offboard, armed, "")
        except DriverError:
            return  # it did not follow six requests
        assert request != "arm" or (arm and not were_armed)


def test_disarming_after_the_motors_were_switched_off_is_no_error() -> None:
    """The end of each landing: the filter sends "motors off", the craft disarms itself."""
    motors = ArmedMotors("the craft")
    motors.check(False, off=False)
    motors.check(True, off=False)
    motors.check(False, off=True)
    with pytest.raises(DriverError, match=r"^the craft was disarmed, by a pilot.*Nothing was sent"):
        motors.check(False, off=False)
