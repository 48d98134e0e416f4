"""Access control of a broker: users, roles, policies, and decisions.

RocketMQ's ACL 2.0 with two departures: a matching deny always has precedence, and roles group policies. The package has
pure values and functions, without network, clock, files or encodings. `cluster.state` replicates them; protocol fronts
use `rules.AccessRules`.

Not here: passwords and tokens, and which right an RPC needs. `cluster.state` and all layers above it
import this package.
"""
