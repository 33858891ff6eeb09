"""Devices for teleoperation: gamepad, keyboard, leader arm. No command without the dead-man switch held."""
