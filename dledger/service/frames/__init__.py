"""The frame port of a server: clients call some unary methods without gRPC (`dledger.frames` has the bytes).

The same servicers answer, after the same checks (`dledger.service.guarded_method`). Not here: streams, health and
reflection, which only gRPC has. Only servers import it.
"""
