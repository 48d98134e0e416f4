"""The gates in front of services: which caller may send which request, what is recorded, and quotas.

Each implements `dledger.service.call_gate.CallGate`. Not here: the tables of rights and of the audit log
(`cluster.api.rights`, `cluster.api.audited`), users and rules (`cluster.access`). Only `cluster.server` and services
that need the caller of a call import it.
"""
