"""What a change sets, as the text that a record of the audit log has as its `detail`.

Each function reads one kind of request, within its bounds. Texts have printable ASCII, at most `TEXT_LENGTH_MAX`
characters, and begin with what gives most rights; a longer one ends with `...`. Of a password a text has that it is set
or removed, and no verifier or digest.

Not here: which method has which text (`cluster.api.audited`).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cluster.access.model import ALL_ACTIONS, Action
from cluster.audit.record import TEXT_LENGTH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

# Of each list of a request: more would not fit, and a request may have thousands.
_ITEMS_MAX: Final = 16
_CUT: Final = "..."
# Written, because a request replaces all of them.
_NO_POLICIES: Final = "no policies"


def of_user(request: Any) -> str:
    """Describe a SetUserRequest."""
    user = request.user
    return _text(
        [
            *_flags(user, is_super="super", is_disabled="disabled"),
            *_flags(request, verifier="password set"),
            *(["password removed"] if request.is_password_removed else []),
            *_flags(request, is_new="new"),
            _list("roles", user.roles, str),
            _list("policies", user.policies, _policy) or _NO_POLICIES,
        ]
    )


def of_role(request: Any) -> str:
    """Describe a SetRoleRequest."""
    return _text([*_flags(request, is_new="new"), _list("policies", request.role.policies, _policy) or _NO_POLICIES])


def of_token(request: Any) -> str:
    """Describe an AddTokenRequest; its times are seconds since 1970."""
    return _text([f"expires_s={request.expires_s}" if request.expires_s else "does not expire"])


def of_topic(request: Any) -> str:
    """Describe a SetTopicRequest."""
    topic = request.topic
    return _text(
        [
            *_flags(request, is_new="new"),
            *_numbers(topic, "read_queues", "write_queues", "permission"),
            *_flags(topic, is_ordered="ordered"),
            *_settings_beyond(topic),
        ]
    )


def of_group(request: Any) -> str:
    """Describe a SetGroupRequest."""
    group = request.group
    flags = {"is_broadcast_enabled": "broadcast", "is_from_min_enabled": "from first message", "is_orderly": "ordered"}
    return _text(
        [
            *_flags(request, is_new="new"),
            "consumes" if group.is_consume_enabled else "does not consume",
            *_flags(group, **flags),
            *_numbers(group, "retry_queues", "retry_max_times", "consume_timeout_minutes"),
            *_settings_beyond(group),
        ]
    )


def of_offsets(request: Any) -> str:
    """Describe a ResetOffsetRequest: offsets by queue."""
    # The service refuses lists of different lengths; what the first list names is shown in any case.
    pairs = list(zip(islice(request.queue_ids, _ITEMS_MAX), request.offsets, strict=False))
    shown = [f"{queue_id}={offset}" for queue_id, offset in pairs]
    return _text([_listed(len(request.queue_ids), "queues", shown)])


def of_delay_levels(request: Any) -> str:
    """Describe a SetDelayLevelsRequest: the delays in milliseconds, of level 1 first."""
    return _text([_list("levels", request.delay_ms, str) or "default levels"])


def of_new_member(request: Any) -> str:
    """Describe an AddMemberRequest."""
    return _text([f"address={_cut(request.address)}"])


def of_registration(request: Any) -> str:
    """Describe a RegisterRequest: the addresses to which it sends clients."""
    nodes = _list("nodes", request.nodes, lambda node: f"{_cut(node.id)}={_cut(node.address)}")
    return _text([f"term={request.term}", f"{len(request.topics)} topics", nodes])


def of_removed_registration(request: Any) -> str:
    """Describe an UnregisterRequest."""
    return _text([f"term={request.term}"])


def of_writable(request: Any) -> str:
    """Describe a SetWritableRequest."""
    return _text(["writable" if request.is_writable else "not writable"])


def _text(parts: Iterable[str]) -> str:
    """Join parts that are not empty; other characters than printable ASCII are replaced by `?`."""
    text = "".join(each if " " <= each <= "~" else "?" for each in ", ".join(filter(None, parts)))
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - len(_CUT)] + _CUT


def _cut(text: str) -> str:
    return text[:TEXT_LENGTH_MAX]


def _flags(message: Any, **shown: str) -> list[str]:
    return [text for name, text in shown.items() if getattr(message, name)]


def _numbers(message: Any, *names: str) -> list[str]:
    return [f"{name}={getattr(message, name)}" for name in names]


def _settings_beyond(message: Any) -> list[str]:
    """Describe the settings that only RocketMQ's clients use, where they are set."""
    items = islice(message.attributes.items(), _ITEMS_MAX)
    shown = [f"{_cut(name)}={_cut(value)}" for name, value in items]
    flag = [f"sys_flag={message.sys_flag}"] if message.sys_flag else []
    return [*flag, _listed(len(message.attributes), "attributes", shown)]


def _list(name: str, items: Collection[Any], shown: Callable[[Any], str]) -> str:
    return _listed(len(items), name, [_cut(shown(each)) for each in islice(items, _ITEMS_MAX)])


def _listed(count: int, name: str, shown: list[str]) -> str:
    """Return the number of items and the first of them; empty: there is none."""
    if not count:
        return ""
    return f"{count} {name}: {'; '.join(shown)}{'; ' + _CUT if count > len(shown) else ''}"


def _policy(policy: Any) -> str:
    """Describe an AccessPolicy as `cluster.access.model.Policy` does; the service has not checked it yet."""
    if policy.actions == ALL_ACTIONS:
        actions = "All"
    elif 0 < policy.actions < ALL_ACTIONS:
        actions = ",".join(str(each.name).capitalize() for each in Action(policy.actions))
    else:
        actions = f"actions={policy.actions}"
    sources = ",".join(_cut(each) for each in islice(policy.sources, _ITEMS_MAX))
    effect = "deny" if policy.is_denied else "allow"
    return f"{effect} {actions} on {_cut(policy.resource)}" + (f" from {sources}" if sources else "")
