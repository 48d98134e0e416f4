"""The asyncio client: `AsyncLogClient` and `AsyncAdminClient`.

For use by the tasks of one event loop. Rules that both clients share (outcomes, retries, search for the leader) are
in `dledger.client`. Applications import the names from `dledger.client` or `dledger`; `cluster.client` uses the
streams.
"""
