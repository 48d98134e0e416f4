"""Filters of pulls: the expression of a subscription, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.remoting.command import Rejected, RemotingCode
from store.errors import IllegalMessage, IllegalRequest
from store.model.read_filter import Sql92, parse_filter

if TYPE_CHECKING:
    from cluster.remoting.clients import Subscription


def checked_filter(subscription: Subscription) -> str:
    """Return the expression of a subscription: an `Sql92`, or tags.

    Raises:
        Rejected: SUBSCRIPTION_PARSE_FAILED.
    """
    expression = Sql92(subscription.expression) if subscription.is_sql else subscription.expression
    try:
        parse_filter(expression)
    except (IllegalMessage, IllegalRequest) as error:
        raise Rejected(RemotingCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    return expression
