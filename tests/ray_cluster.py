"""A Ray cluster of two nodes on this machine, as a program of its own.

It prints the address of the cluster. `busy` on standard input prints how many nodes have work, `kill`
ends the second node at once and prints 0, and the end of the input ends the cluster. Its answers begin with
`MARK`, because Ray prints on the same stream.
"""

from __future__ import annotations

import sys

MARK = "answer: "
LOOPBACK = "127.0.0.2"
"""Ray replaces 127.0.0.1 by the address of the machine in the network, but not this one."""
MEMORY = 256 * 1024 * 1024
"""Bytes of each node's object store."""


def main() -> None:
    import ray
    from ray._private.state import available_resources_per_node
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": MEMORY, "node_ip_address": LOOPBACK}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    second = cluster.add_node(**node)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, _node_ip_address=LOOPBACK)
    say(cluster.address)
    for line in sys.stdin:
        if line.strip() == "busy":
            say(sum(1 for node in available_resources_per_node().values() if node.get("CPU", 0.0) < 0.5))
        else:
            cluster.remove_node(second, allow_graceful=False)
            say(0)
    ray.shutdown()
    cluster.shutdown()


def say(what: object) -> None:
    sys.stdout.write(f"{MARK}{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
