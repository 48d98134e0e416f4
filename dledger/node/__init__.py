"""One node of a group: the asyncio shell around driver, transport and disk.

Timers, inbox, batching, background tasks, start and stop, the state machine of an application. The rules of Raft are
in `dledger.core`, gRPC is in `dledger.service`. Services, brokers and embedding programs import it; the client never
does.
"""
