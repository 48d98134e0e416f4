"""The settings that producers and consumers take by name are the fields of their options, with the same types."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from cluster.client.consumer.options import ConsumerOptions, ConsumerSettings
from cluster.client.producer.options import ProducerOptions, ProducerSettings


@pytest.mark.parametrize(
    ("settings", "options"), [(ProducerSettings, ProducerOptions), (ConsumerSettings, ConsumerOptions)]
)
def test_settings_are_the_fields_of_the_options(settings: Any, options: Any) -> None:
    assert get_type_hints(options) == get_type_hints(settings)
