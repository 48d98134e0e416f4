"""The audit log of a broker: user, action, resources, address and result of calls.

Lines of JSON in files of a node: one series of files for changes, one for refusals, one for logins, lists of users and
roles, and data. Not here: which calls are recorded, and what they are about (`cluster.api.audited`,
`cluster.api.gates.call_audit`). `cluster.api`, `cluster.server` and `cluster.cli` import it.
"""
