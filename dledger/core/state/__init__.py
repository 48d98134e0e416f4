"""The state of the consensus core: log tail, memberships, roles, progress of followers.

The data of one node, with read access; the rules that change it are the modules of `dledger.core`, and only
`dledger.core.transitions` writes role, term, vote and leader. Pure, as all of the core. Modules of the core, observers
and checks import it.
"""
