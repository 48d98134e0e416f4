"""Pop consumption on the leader: chooses messages for consumers, and proposes what they take and acknowledge.

| module | function |
| --- | --- |
| `handles` | receipt handles as text |
| `clock` | log time |
| `writing` | operations of many calls in one entry |
| `choosing` | which messages of a queue a consumer may have; what is proposed already is not chosen again |
| `ordered_choosing` | the same for groups that consume in order: at most one message of a message group |
| `attempts` | receives that are repeated while the first one is at work |
| `polls` | consumers that wait for messages |
| `receiving` | takes, acknowledgements and changes of the invisible time |

Everything here is volatile: another leader needs only the broker state (`cluster.state.pop`), which checks each
operation again. So what a deposed leader proposes is harmless, and an operation with an unknown outcome needs no care.
"""
