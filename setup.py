"""Settings that setup.cfg cannot hold for both pip and colcon: the Python range and the files for ROS 2."""

from __future__ import annotations

from glob import glob

from setuptools import setup

LAUNCH_FILES = sorted(glob("launch/*.launch.py"))

setup(
    python_requires=">=3.10",
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/robo_rl"]),
        ("share/robo_rl", ["package.xml"]),
        *([("share/robo_rl/launch", LAUNCH_FILES)] if LAUNCH_FILES else []),
    ],
)
