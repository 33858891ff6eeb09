"""How nodes talk: one protocol, three adapters (in process, rclpy, DDS without ROS)."""
