"""The rules of a name server, and the registration of brokers.

The package decides which registrations are accepted and which routes follow from them. The gRPC service is
`cluster.api.name_server`. Services and servers import this package.
"""
