"""The role of a name server: routes of topics, lists of topics, and the settings that tools keep at name servers.

Any node answers from its own state; for a topic that it does not know yet it asks the leader of the group. `routes`
has the bodies of answers without any input or output, and `part` the handlers of requests.
"""
