"""The asyncio client: `AsyncLogClient` and `AsyncAdminClient`.

For use by the tasks of one event loop. Rules shared with the blocking client (outcomes, retries, leader discovery) are
in `dledger.client`. Applications import the names from `dledger.client` or `dledger`; `cluster.client` uses the
streams.
"""
