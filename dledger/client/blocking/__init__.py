"""The blocking client: `LogClient` and `AdminClient`.

Safe to share between threads. Rules shared with the asyncio client (outcomes, retries, leader discovery) are in
`dledger.client`. Applications import the names from `dledger.client` or `dledger`.
"""
