"""The simulator of the shell: clients, connections and nodes as they ship, on simulated loops, network and disks."""
