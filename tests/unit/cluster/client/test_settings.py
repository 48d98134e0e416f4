"""The keyword arguments of producers and consumers are the fields of their options, with the same types."""

from __future__ import annotations

from inspect import get_annotations
from typing import Any

import pytest

from cluster.client.consumer.options import ConsumerOptions, ConsumerSettings
from cluster.client.producer.options import ProducerOptions, ProducerSettings


# As they are written: options and settings are in one module, where a name means one type.
@pytest.mark.parametrize(
    ("settings", "options"), [(ProducerSettings, ProducerOptions), (ConsumerSettings, ConsumerOptions)]
)
def test_settings_are_the_fields_of_the_options(settings: Any, options: Any) -> None:
    types = {name: reference.__forward_arg__ for name, reference in get_annotations(settings).items()}
    assert types == get_annotations(options)
    assert types
