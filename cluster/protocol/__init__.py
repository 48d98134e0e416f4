"""The vocabulary that brokers, name servers and clients share: errors, routes, settings of topics, bounds of requests.

`errors` is the one table between causes, status codes and outcomes; only `wire` translates to and from `cluster.v1`. No
connection is opened here. Clients and servers import it; it knows neither.
"""
