"""Where the request mode of a group is kept: it pops messages of a topic, or (without any setting) pulls them.

An attribute of the group, `request.mode.<topic>`, with the value `POP:<popShareQueueNum>`: so the mode is replicated,
and is deleted with its group. RocketMQ keeps it beside the groups, so tools that set a group know nothing of it:
`kept_modes` adds what such a request leaves out. Pure.

Source: RocketMQ `MessageRequestModeManager`, `SetMessageRequestModeRequestBody`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cluster.protocol.topic_config import Attributes

_PREFIX: Final = "request.mode."
_POP: Final = "POP"


def is_popped(attributes: Attributes, topic: str) -> bool:
    """Return whether a group with these attributes pops the messages of a topic."""
    return any(name == _PREFIX + topic and value.startswith(f"{_POP}:") for name, value in attributes)


def set_popped(attributes: dict[str, str], topic: str, share: int) -> None:
    """Let a group pop the messages of a topic; `share`: RocketMQ's `popShareQueueNum`, which has no effect."""
    attributes[_PREFIX + topic] = f"{_POP}:{share}"


def set_pulled(attributes: dict[str, str], topic: str) -> None:
    """Let a group pull the messages of a topic."""
    attributes.pop(_PREFIX + topic, None)


def kept_modes(attributes: Attributes) -> dict[str, str]:
    """Return those attributes of a group that are request modes."""
    return {name: value for name, value in attributes if name.startswith(_PREFIX)}
