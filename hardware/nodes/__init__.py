"""ROS 2 nodes: each one class that wires topics to plain code, and takes a bus."""
