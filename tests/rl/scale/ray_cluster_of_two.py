"""Two nodes of a Ray cluster as processes on loopback, until the standard input ends.

Prints the address. Each node has one CPU, so that two actors must run on different nodes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

from ray._private.utils import get_ray_address_file
from ray.cluster_utils import Cluster

# Ray notes the address of the newest cluster there, and expects the folder to exist.
Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)
cluster = Cluster()
for _ in range(2):
    cluster.add_node(
        num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False, temp_dir=sys.argv[1]
    )
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
