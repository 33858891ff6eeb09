# Robot nodes with ROS 2 Jazzy: policies, safety filter, drivers and launch files; no trainer, no simulator.
# Not built yet where this file was written.
#   docker build -f docker/Dockerfile.robot -t robo-rl:jazzy .
#   docker run --rm --network host robo-rl:jazzy ros2 launch robo_rl arm.launch.py bundle:=/bundle
FROM ros:jazzy-ros-base

RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-pip python3-venv ros-jazzy-rmw-cyclonedds-cpp \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /ws/src/robo_rl
COPY . .
# Ubuntu 24.04 refuses pip outside of an environment; this one sees ROS' own packages.
RUN python3 -m venv --system-site-packages /opt/robo-rl \
 && /opt/robo-rl/bin/pip install --no-cache-dir '.[robot,ur,xarm,crazyflie,px4]'
WORKDIR /ws
RUN . /opt/ros/jazzy/setup.sh && colcon build --packages-select robo_rl
ENV RMW_IMPLEMENTATION=rmw_cyclonedds_cpp
RUN printf '#!/bin/sh\n. /opt/ros/jazzy/setup.sh\n. /ws/install/setup.sh\nexport PYTHONPATH="/opt/robo-rl/lib/python3.12/site-packages:$PYTHONPATH"\nexec "$@"\n' > /entrypoint.sh \
 && chmod +x /entrypoint.sh
ENTRYPOINT ["/entrypoint.sh"]
CMD ["ros2", "launch", "robo_rl", "arm.launch.py", "--show-args"]
