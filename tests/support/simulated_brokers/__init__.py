"""Brokers in the simulator: production replicas with leader tasks on simulated event loops, networks and disks."""
