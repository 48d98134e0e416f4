"""The simulator of the shell: production clients, connections and nodes on simulated event loops, network and disks."""
