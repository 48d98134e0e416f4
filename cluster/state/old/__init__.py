"""What a broker takes over from an old store beyond topics, groups and offsets.

`commands` has the command with a piece of a part of the state; `delay_table` the delays of the delay levels, which a
RocketMQ broker reads from its configuration.
"""
