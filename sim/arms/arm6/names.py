TASKS = ("reach", "peg")  # of the simulated six-axis arm
