"""Transactions: messages that consumers get only if their producer decides so, or answers so when it is asked.

`half_messages` recognises and diverts what a producer prepares, `records` makes the records that end transactions,
`ends` decides and writes them, one put at a time, `producers` has the streams of producers that can be asked, `checks`
asks them. The state is `cluster.state.transactions`.
"""
