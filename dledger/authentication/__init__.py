"""Authentication of clients: SCRAM-SHA-256 for passwords, tokens for calls, bounds on failed logins.

Pure: no network, no clock, no file; callers pass times and random numbers in. Servers hold verifiers and digests,
from which no password or token can be recovered. Clients and servers import it.

Not here: which users exist (`cluster.state`), and what they may do (`cluster.access`).
"""
