"""Messages with effects, as brokers make them."""

from commitlog.record.effects import properties_with_effect
from store.model.sys_flag import CARRIES_EFFECT


def with_effect(message, raw, effect):
    """Return a message that carries an effect; `raw`: its properties, encoded."""
    properties = properties_with_effect(raw, effect)
    return message._replace(properties=properties, sys_flag=message.sys_flag | CARRIES_EFFECT)
