"""Communication between nodes: one protocol, three implementations (in process, rclpy, DDS without ROS)."""
