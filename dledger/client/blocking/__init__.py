"""The blocking client: `LogClient` and `AdminClient`.

Safe to share between threads. Rules that both clients share (outcomes, retries, search for the leader) are in
`dledger.client`. Applications import the names from `dledger.client` or `dledger`.
"""
