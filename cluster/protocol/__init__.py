"""The vocabulary that brokers, name servers and clients share: errors, routes, settings of topics, bounds of requests.

`errors` is the one table between causes, gRPC status codes and outcomes; `route_messages` and `skipped_messages`
translate to and from `cluster.v1`. No connection is opened here. Clients and servers import it; it knows neither.
"""
