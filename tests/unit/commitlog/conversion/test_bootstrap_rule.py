"""The rule by which nodes agree on the base log: from the same statements the same decision, and never too early."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog.conversion.base_log_files import BaseLogFile, BaseLogManifest, BaseLogsDiffer
from commitlog.conversion.bootstrap_rule import (
    NOTHING,
    BootstrapDecision,
    Claim,
    Statement,
    Waiting,
    decide,
    source_of_config,
    statement_from,
)

SIZE = 64
FILES = tuple(BaseLogFile(f"{number * SIZE:020d}", SIZE, 1000 + number) for number in range(4))
DIVIDE = len(FILES) * SIZE
WHOLE = BaseLogManifest(DIVIDE, FILES)
OTHER = BaseLogManifest(DIVIDE, (*FILES[:2], BaseLogFile(FILES[2].name, SIZE, 7), FILES[3]))
EMPTY = BaseLogManifest(0)
OTHERS = ("n1", "n2")


def held(manifest=WHOLE, begin=0):
    return Statement(Claim.HELD, manifest, begin)


def agreed(manifest=WHOLE, begin=0):
    return Statement(Claim.AGREED, manifest, begin)


AWAITED = Statement(Claim.AWAITED, WHOLE, DIVIDE)


def decided(own, *, is_joining=False, founders=OTHERS, **received):
    return decide(own, received, founders, is_joining=is_joining)


@pytest.mark.parametrize("own", [NOTHING, held(), AWAITED])
@pytest.mark.parametrize("received", [{}, {"n1": NOTHING}, {"n1": held()}, {"n2": AWAITED}])
def test_founder_waits_for_every_other_founder_and_names_the_silent_ones(own, received):
    waiting = decided(own, **received)

    assert isinstance(waiting, Waiting)
    missing = [peer for peer in OTHERS if peer not in received]
    assert waiting.reason.startswith(f"for {' '.join(missing)}:")


def test_group_begins_at_0_when_all_have_nothing():
    assert decided(NOTHING, n1=NOTHING, n2=NOTHING) == BootstrapDecision(EMPTY, ())


def test_group_of_one_needs_no_other_node():
    assert decided(NOTHING, founders=()) == BootstrapDecision(EMPTY, ())
    assert decided(held(), founders=()) == BootstrapDecision(WHOLE, ())


@pytest.mark.parametrize("own", [NOTHING, held(), AWAITED])
def test_the_files_of_one_are_the_base_of_all(own):
    assert decided(own, n1=held(), n2=NOTHING) == BootstrapDecision(WHOLE, ("n1",))


def test_node_with_most_files_is_asked_first_and_one_without_files_not_at_all():
    statements = {"n1": agreed(begin=2 * SIZE), "n2": agreed(begin=SIZE), "n3": agreed(begin=DIVIDE)}
    assert decided(NOTHING, **statements).sources == ("n2", "n1")


def test_no_node_begins_while_files_are_awaited_that_none_holds():
    waiting = decided(NOTHING, n1=AWAITED, n2=NOTHING)
    assert isinstance(waiting, Waiting)
    assert "no connected node has it" in waiting.reason
    assert isinstance(decided(AWAITED, n1=NOTHING, n2=NOTHING), Waiting)


def test_a_node_that_has_joined_decides_for_all_founders():
    assert decided(NOTHING, n2=agreed()) == BootstrapDecision(WHOLE, ("n2",))
    assert decided(NOTHING, n2=agreed(EMPTY)) == BootstrapDecision(EMPTY, ())
    # Also if its own files have expired: the manifest lists them.
    assert decided(NOTHING, n1=agreed(begin=DIVIDE)) == BootstrapDecision(WHOLE, ())


def test_node_that_joins_founds_nothing():
    assert isinstance(decided(NOTHING, is_joining=True, n1=NOTHING, n2=NOTHING), Waiting)
    assert isinstance(decided(held(), is_joining=True, n1=held(), n2=held()), Waiting)
    assert decided(NOTHING, is_joining=True, n1=agreed()) == BootstrapDecision(WHOLE, ("n1",))


@pytest.mark.parametrize(
    ("own", "received", "named"),
    [
        (held(), {"n1": held(OTHER)}, f"n1: file {FILES[2].name}"),
        (AWAITED, {"n2": held(OTHER)}, f"n2: file {FILES[2].name}"),
        (NOTHING, {"n1": held(), "n2": held(OTHER)}, f"those of n2: file {FILES[2].name}"),
        (held(), {"n1": agreed(OTHER)}, f"n1: file {FILES[2].name}"),
        (held(), {"n1": agreed(EMPTY)}, f"n1: they end at {DIVIDE} here and at 0 there"),
        (NOTHING, {"n1": agreed(), "n2": agreed(OTHER)}, f"file {FILES[2].name}"),
        # One lacks the oldest file: which of the copies is intact is unknown.
        (
            held(),
            {"n1": held(BaseLogManifest(DIVIDE, FILES[1:]), SIZE)},
            f"the oldest file is {FILES[0].name} here and",
        ),
        # The group has less than this node.
        (
            held(),
            {"n1": agreed(BaseLogManifest(DIVIDE, FILES[1:]), SIZE)},
            f"file {FILES[0].name} exists here, and is unknown",
        ),
    ],
)
def test_different_files_are_refused_with_the_first_difference_whichever_node_is_missing(own, received, named):
    with pytest.raises(BaseLogsDiffer) as differ:
        decided(own, **received)
    assert named in str(differ.value)


@pytest.mark.parametrize("statement", [NOTHING, held(), agreed(begin=SIZE), AWAITED])
def test_statement_is_decoded_as_it_was_encoded(statement):
    assert statement_from(*statement.encoded()) == statement


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (None, b""),
        (7, b""),
        ("[]", b""),
        ("{}", b'{"divide":0,"files":[]}'),
        ('{"claim":"held","begin":true}', b'{"divide":0,"files":[]}'),
        ('{"claim":"boasted","begin":0}', b'{"divide":0,"files":[]}'),
        ('{"claim":"held","begin":0}', b""),
        ('{"claim":"held","begin":0}', b'{"divide":64,"files":[["x",64,1]]}'),
        ('{"claim":"held","begin":0}', b"\xff"),
    ],
)
def test_invalid_statement_is_refused(text, payload):
    with pytest.raises(ValueError, match=r"."):
        statement_from(text, payload)


class FoundingNode:
    """A founder: its statements and its files, which a crash does not lose."""

    def __init__(self, manifest):
        self.manifest = manifest
        self.statement = NOTHING if manifest == EMPTY else held(manifest)
        self.is_ended = False

    @property
    def is_agreed(self):
        return self.statement.claim is Claim.AGREED

    def step(self, received, founders, *, is_fetch_done):
        """Decide, as `cluster.replica.bootstrap` does; its fetch may be interrupted."""
        try:
            decision = decide(self.statement, received, founders, is_joining=False)
        except BaseLogsDiffer:
            self.is_ended = True
            return
        if isinstance(decision, Waiting):
            return
        manifest = decision.manifest
        if self.statement.claim is not Claim.HELD and manifest.files:
            self.statement = Statement(Claim.AWAITED, manifest, manifest.divide)
            if not is_fetch_done or not decision.sources:
                return
        self.statement = Statement(Claim.AGREED, manifest, 0)


@settings(max_examples=300, deadline=None)
@given(
    stores=st.lists(st.sampled_from([EMPTY, WHOLE, OTHER]), min_size=2, max_size=5),
    seed=st.integers(0, 1 << 32),
)
def test_founders_that_get_answers_in_any_order_agree_or_decide_nothing(stores, seed):
    draw = random.Random(seed)
    nodes = {f"n{number}": FoundingNode(store) for number, store in enumerate(stores)}
    for _ in range(60):
        name, node = draw.choice(list(nodes.items()))
        reached = [peer for peer in nodes if peer != name and draw.random() < 0.8]
        # A node that refused to form a group no longer answers.
        received = {peer: nodes[peer].statement for peer in reached if not nodes[peer].is_ended}
        if not node.is_agreed and not node.is_ended:
            node.step(received, [peer for peer in nodes if peer != name], is_fetch_done=draw.random() < 0.7)
    manifests = {node.statement.manifest for node in nodes.values() if node.is_agreed}
    assert len(manifests) <= 1
    kinds = {store for store in stores if store != EMPTY}
    if len(kinds) == 2:
        assert not manifests
    elif manifests:
        assert manifests == (kinds or {EMPTY})


@settings(max_examples=50, deadline=None)
@given(stores=st.lists(st.sampled_from([EMPTY, WHOLE]), min_size=2, max_size=5))
def test_founders_that_reach_each_other_all_agree_within_two_rounds(stores):
    nodes = {f"n{number}": FoundingNode(store) for number, store in enumerate(stores)}
    for _ in range(2):
        for name, node in nodes.items():
            others = {peer: each.statement for peer, each in nodes.items() if peer != name}
            if not node.is_agreed:
                node.step(others, list(others), is_fetch_done=True)
    assert all(node.is_agreed for node in nodes.values())


@given(
    sizes=st.dictionaries(st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 2)),
    claims=st.lists(st.sampled_from([Claim.NOTHING, Claim.HELD, Claim.AGREED]), min_size=3, max_size=3),
)
def test_configuration_is_the_largest_whatever_the_nodes_have_agreed_on(sizes, claims):
    statements = {
        peer: Statement(claim, WHOLE, 0, config_size_bytes=size)
        for (peer, size), claim in zip(sizes.items(), claims, strict=False)
    }
    largest = max(sizes.values(), default=0)
    first = next((peer for peer in sorted(sizes) if sizes[peer] == largest), None)
    assert source_of_config(statements) == (first if largest else None)
