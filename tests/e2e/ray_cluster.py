"""A Ray cluster of nodes on this machine: `python ray_cluster.py NODE... < words`.

A node is a JSON object: `env_vars`, and other arguments of Ray's `Cluster.add_node`. Prints its address. The word `kill` kills
the last node; the end of standard input ends all.
"""

from __future__ import annotations

import json
import sys

from ray.cluster_utils import Cluster

_SMALL = {"object_store_memory": 80_000_000}
#: A node that is gone is noticed in a second or two; Ray's own patience is for networks.
_IMPATIENT = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


def main() -> None:
    head, *others = sys.argv[1:]
    first = {"num_cpus": 1, "include_dashboard": False, "_system_config": _IMPATIENT}
    cluster = Cluster(initialize_head=True, head_node_args={**_SMALL, **first, **json.loads(head)})
    try:
        nodes = [cluster.add_node(num_cpus=1, **_SMALL, **json.loads(node)) for node in others]
        sys.stdout.write(cluster.address + "\n")
        sys.stdout.flush()
        for word in sys.stdin:
            if word.strip() == "kill":
                cluster.remove_node(nodes.pop(), allow_graceful=False)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
