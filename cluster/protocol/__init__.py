"""The types shared by brokers, name servers and clients: errors, routes, settings of topics, bounds of requests.

`errors` has the table of causes, status codes and outcomes; only `wire` converts to and from `cluster.v1`. The package
opens no connection. Clients and servers import it; it imports neither.
"""
