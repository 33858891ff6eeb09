"""Definitions of the ROS messages that nodes exchange, as plain text: the fields of a message in their order.

They are those of rosbags, which a test checks field by field. All distributions have them in common, apart
from DIFFERENT. std_srvs and control_msgs are not in the stores of rosbags.
"""

from __future__ import annotations

DEFINITIONS = {
    "builtin_interfaces/msg/Duration": "int32 sec, uint32 nanosec",
    "builtin_interfaces/msg/Time": "int32 sec, uint32 nanosec",
    "control_msgs/msg/JointJog": (
        "std_msgs/msg/Header header, string[] joint_names, float64[] displacements, float64[] velocities, "
        "float64 duration"
    ),
    "diagnostic_msgs/msg/DiagnosticArray": (
        "std_msgs/msg/Header header, diagnostic_msgs/msg/DiagnosticStatus[] status"
    ),
    "diagnostic_msgs/msg/DiagnosticStatus": (
        "byte OK=0, byte WARN=1, byte ERROR=2, byte STALE=3, byte level, string name, string message, "
        "string hardware_id, diagnostic_msgs/msg/KeyValue[] values"
    ),
    "diagnostic_msgs/msg/KeyValue": "string key, string value",
    "geometry_msgs/msg/Point": "float64 x, float64 y, float64 z",
    "geometry_msgs/msg/Pose": "geometry_msgs/msg/Point position, geometry_msgs/msg/Quaternion orientation",
    "geometry_msgs/msg/PoseWithCovariance": "geometry_msgs/msg/Pose pose, float64[36] covariance",
    "geometry_msgs/msg/Quaternion": "float64 x, float64 y, float64 z, float64 w",
    "geometry_msgs/msg/Twist": "geometry_msgs/msg/Vector3 linear, geometry_msgs/msg/Vector3 angular",
    "geometry_msgs/msg/TwistStamped": "std_msgs/msg/Header header, geometry_msgs/msg/Twist twist",
    "geometry_msgs/msg/TwistWithCovariance": "geometry_msgs/msg/Twist twist, float64[36] covariance",
    "geometry_msgs/msg/Vector3": "float64 x, float64 y, float64 z",
    "nav_msgs/msg/Odometry": (
        "std_msgs/msg/Header header, string child_frame_id, geometry_msgs/msg/PoseWithCovariance pose, "
        "geometry_msgs/msg/TwistWithCovariance twist"
    ),
    "rcl_interfaces/msg/FloatingPointRange": "float64 from_value, float64 to_value, float64 step",
    "rcl_interfaces/msg/IntegerRange": "int64 from_value, int64 to_value, uint64 step",
    "rcl_interfaces/msg/ListParametersResult": "string[] names, string[] prefixes",
    "rcl_interfaces/msg/Parameter": "string name, rcl_interfaces/msg/ParameterValue value",
    "rcl_interfaces/msg/ParameterDescriptor": (
        "string name, uint8 type, string description, string additional_constraints, bool read_only, "
        "bool dynamic_typing, rcl_interfaces/msg/FloatingPointRange[<=1] floating_point_range, "
        "rcl_interfaces/msg/IntegerRange[<=1] integer_range"
    ),
    "rcl_interfaces/msg/ParameterValue": (
        "uint8 type, bool bool_value, int64 integer_value, float64 double_value, string string_value, "
        "byte[] byte_array_value, bool[] bool_array_value, int64[] integer_array_value, "
        "float64[] double_array_value, string[] string_array_value"
    ),
    "rcl_interfaces/msg/SetParametersResult": "bool successful, string reason",
    "rmw_dds_common/msg/Gid": "char[16] data",
    "rmw_dds_common/msg/NodeEntitiesInfo": (
        "string<=256 node_namespace, string<=256 node_name, rmw_dds_common/msg/Gid[] reader_gid_seq, "
        "rmw_dds_common/msg/Gid[] writer_gid_seq"
    ),
    "rmw_dds_common/msg/ParticipantEntitiesInfo": (
        "rmw_dds_common/msg/Gid gid, rmw_dds_common/msg/NodeEntitiesInfo[] node_entities_info_seq"
    ),
    "sensor_msgs/msg/CameraInfo": (
        "std_msgs/msg/Header header, uint32 height, uint32 width, string distortion_model, float64[] d, "
        "float64[9] k, float64[9] r, float64[12] p, uint32 binning_x, uint32 binning_y, "
        "sensor_msgs/msg/RegionOfInterest roi"
    ),
    "sensor_msgs/msg/CompressedImage": "std_msgs/msg/Header header, string format, uint8[] data",
    "sensor_msgs/msg/Image": (
        "std_msgs/msg/Header header, uint32 height, uint32 width, string encoding, uint8 is_bigendian, "
        "uint32 step, uint8[] data"
    ),
    "sensor_msgs/msg/Imu": (
        "std_msgs/msg/Header header, geometry_msgs/msg/Quaternion orientation, "
        "float64[9] orientation_covariance, geometry_msgs/msg/Vector3 angular_velocity, "
        "float64[9] angular_velocity_covariance, geometry_msgs/msg/Vector3 linear_acceleration, "
        "float64[9] linear_acceleration_covariance"
    ),
    "sensor_msgs/msg/JointState": (
        "std_msgs/msg/Header header, string[] name, float64[] position, float64[] velocity, float64[] effort"
    ),
    "sensor_msgs/msg/RegionOfInterest": (
        "uint32 x_offset, uint32 y_offset, uint32 height, uint32 width, bool do_rectify"
    ),
    "std_msgs/msg/Bool": "bool data",
    "std_msgs/msg/Float64MultiArray": "std_msgs/msg/MultiArrayLayout layout, float64[] data",
    "std_msgs/msg/Header": "builtin_interfaces/msg/Time stamp, string frame_id",
    "std_msgs/msg/MultiArrayDimension": "string label, uint32 size, uint32 stride",
    "std_msgs/msg/MultiArrayLayout": "std_msgs/msg/MultiArrayDimension[] dim, uint32 data_offset",
    "std_msgs/msg/String": "string data",
    # A request without fields is one byte in CDR.
    "std_srvs/msg/Trigger_Request": "uint8 structure_needs_at_least_one_member",
    "std_srvs/msg/Trigger_Response": "bool success, string message",
    "trajectory_msgs/msg/JointTrajectory": (
        "std_msgs/msg/Header header, string[] joint_names, trajectory_msgs/msg/JointTrajectoryPoint[] points"
    ),
    "trajectory_msgs/msg/JointTrajectoryPoint": (
        "float64[] positions, float64[] velocities, float64[] accelerations, float64[] effort, "
        "builtin_interfaces/msg/Duration time_from_start"
    ),
}
DIFFERENT = {"humble": {"rmw_dds_common/msg/Gid": "char[24] data"}}
