"""The settings of a broker's node reach the parts that use them, in their units."""

from cluster.config.load import load_config
from cluster.delivery.compaction import CompactionSettings
from cluster.server.node import _options_of

GOOD = {"self_id": "n0", "peers": "n0-127.0.0.1:1001", "store_base_dir": "data", "broker": "b"}


def compaction_of(**settings: str) -> CompactionSettings:
    config = load_config(None, {}, GOOD | settings)
    assert config.broker is not None
    return _options_of(config, config.broker, config.node).compaction


def test_the_compaction_of_a_node_has_its_settings_and_the_same_defaults_without() -> None:
    assert compaction_of() == CompactionSettings()
    changed = compaction_of(compaction_schedule_internal="2500", compaction_keep_tombstones_sec="60")
    assert changed == CompactionSettings(2.5, 60)
