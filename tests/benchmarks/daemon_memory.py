"""What the system says of the memory of daemons that run."""

from pathlib import Path

from deploy.local_cluster import LocalCluster
from deploy.local_process import LocalDaemon


def daemons(cluster: LocalCluster) -> list[LocalDaemon]:
    """Return all daemons of a cluster, the aggregator first."""
    return [cluster.aggregator, *cluster.owners.values()]


def memory(daemon: LocalDaemon, field: str) -> int:
    """Return bytes of a process's memory: `VmRSS` now, `VmHWM` at most so far."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])
