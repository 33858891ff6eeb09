"""What a human takes over with: gamepad, keyboard, a leader arm. No intervention without the dead-man switch
held.
"""
