"""Every field of every request has a suitable bound; violations are reported, if necessary before parsing."""

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from cluster.grpc_v2.bounds import BOUNDS as ROCKETMQ_BOUNDS
from cluster.protocol.access_bounds import ACCESS_BOUNDS
from cluster.protocol.request_bounds import BROKER_BOUNDS, NAME_SERVER_BOUNDS
from cluster.v1 import access_pb2 as pb_access
from cluster.v1 import broker_pb2 as pb
from dledger.service.guarded_method import UNCHECKED_SIZE_BYTES
from dledger.service.limits.field_bounds import ANY_NUMBER, FieldFault, Many, RequestShape, Text, UnboundedField
from dledger.service.limits.request_bounds import LOG_BOUNDS, STANDARD_BOUNDS

PROTO = Path(__file__).parents[5] / "proto"
BOUNDS = {
    "apache.rocketmq.v2.MessagingService": ROCKETMQ_BOUNDS,
    "dledger.v1.LogService": LOG_BOUNDS,
    "dledger.v1.AdminService": LOG_BOUNDS,
    "cluster.v1.BrokerService": BROKER_BOUNDS,
    "cluster.v1.AccessService": ACCESS_BOUNDS,
    "cluster.v1.NameServer": NAME_SERVER_BOUNDS,
    "grpc.health.v1.Health": STANDARD_BOUNDS,
    "grpc.reflection.v1alpha.ServerReflection": STANDARD_BOUNDS,
}


def services() -> list[ServiceDescriptor]:
    """Return all services of `proto/`, and those that every server has beside."""
    found = []
    for file in sorted(PROTO.rglob("*.proto")):
        name = ".".join(file.relative_to(PROTO).with_suffix("").parts)
        found += importlib.import_module(f"{name}_pb2").DESCRIPTOR.services_by_name.values()
    standard = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    return [*found, *(service for file in standard for service in file.services_by_name.values())]


def shape(kind, bounds=BROKER_BOUNDS) -> RequestShape:
    return RequestShape(kind.DESCRIPTOR, bounds)


def test_every_field_of_every_request_has_a_bound() -> None:
    found = {service.full_name: service for service in services()}

    assert set(BOUNDS) == set(found)
    for name, service in found.items():
        for method in service.methods:
            assert RequestShape(method.input_type, BOUNDS[name]).size_bytes_max > 0


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {"topics": Text(7)},
        {"topics": Many(7, ANY_NUMBER)},
        {"topics": Many(7, Text(7)), "colours": Text(7)},
    ],
    ids=["missing", "no list", "no text", "unknown"],
)
def test_a_table_that_does_not_fit_the_message_is_refused(rows) -> None:
    kind = pb.DESCRIPTOR.services_by_name["BrokerService"].methods_by_name["Route"].input_type

    with pytest.raises(UnboundedField, match="RouteRequest"):
        RequestShape(kind, {kind.full_name: rows})


@pytest.mark.parametrize(
    ("request_", "field", "found"),
    [
        (pb.GetRequest(tags="a||" * 500_000), "tags", "1500000"),
        (pb.GetRequest(topic="a" * 256), "topic", "256"),
        (pb.SubscribeRequest(queue_ids=range(1_025)), "queue_ids", "1025"),
        (pb.PutRequest(bodies=[b""] * 4_097), "bodies", "4097"),
        (pb.PutRequest(bodies=[b"x"], properties=[b"", bytes(65_537)]), "properties", "65537"),
        (pb.SetTopicRequest(topic=pb.Topic(attributes={"a" * 1_025: ""})), "attributes", "1025"),
        (pb.SetTopicRequest(topic=pb.Topic(attributes={str(each): "" for each in range(65)})), "attributes", "65"),
        (pb.JoinGroupRequest(subscriptions=[pb.Subscription(), pb.Subscription(tags="x" * 8_193)]), "tags", "8193"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_field_that_breaks_its_bound_is_named(request_, field: str, found: str) -> None:
    fault = shape(type(request_)).fault_of(request_)

    assert fault is not None
    assert (fault.field, fault.found) == (field, found)


def test_a_request_within_its_bounds_passes_parsed_or_not() -> None:
    bodies, properties = [b"x" * 1_500] * 4_096, [b"y" * 200] * 4_096
    request = pb.PutRequest(topic="orders", bodies=bodies, properties=properties, flags=range(4_096), request_id=7)

    assert shape(pb.PutRequest).fault_of(request) is None
    assert shape(pb.PutRequest).wire_fault_of(request.SerializeToString(), UNCHECKED_SIZE_BYTES) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x1a\x00" * 1_000_000,
        b"\x28\x00" * 1_000_000,
        b"\x2a\xc0\x84\x3d" + bytes(1_000_000),
        b"\x2a\x01\x00" * 500_000,
    ],
    ids=["empty bodies", "numbers one by one", "packed numbers", "packed one by one"],
)
def test_requests_that_are_slow_to_parse_are_refused_before_parsing(data: bytes) -> None:
    assert shape(pb.PutRequest).wire_fault_of(data, UNCHECKED_SIZE_BYTES) is not None


def nested(tag: int, content: bytes) -> bytes:
    """Return a field with a message of less than 2 MiB."""
    size = len(content)
    return bytes((tag, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + content


@pytest.mark.parametrize(
    "content",
    [nested(0x2A, b"\x22\x00" * 500_000), b"\x2a\x00" * 500_000, b"\x22\x00" * 500_000, b"\x10\x00" * 500_000],
    ids=["sources of a policy", "policies", "roles", "numbers"],
)
def test_lists_in_nested_messages_are_counted_before_parsing(content: bytes) -> None:
    data = nested(0x0A, content)

    assert pb_access.SetUserRequest.FromString(data)
    fault = shape(pb_access.SetUserRequest, ACCESS_BOUNDS).wire_fault_of(data, UNCHECKED_SIZE_BYTES)
    assert fault is not None
    assert fault.found == "more"


def test_lists_in_elements_are_bounded_together_and_before_their_elements_are_read() -> None:
    """A thousand policies with 256 sources each took the loop of a broker three seconds, then were refused."""
    policies = [pb_access.AccessPolicy(sources=["10.0.0.1"] * 128)] * 2
    users = shape(pb_access.SetUserRequest, ACCESS_BOUNDS)
    assert users.fault_of(pb_access.SetUserRequest(user=pb_access.AccessUser(policies=policies))) is None

    policies.append(pb_access.AccessPolicy(sources=["x" * 1_000]))
    fault = users.fault_of(pb_access.SetUserRequest(user=pb_access.AccessUser(policies=policies)))

    assert fault == FieldFault("sources", "at most 256 in all policies", "257")
    assert users.size_bytes_max < 2 << 20


@pytest.mark.parametrize("end", range(1, 12))
def test_a_request_that_is_cut_short_is_left_to_the_parser(end: int) -> None:
    data = pb.PutRequest(topic="t", flags=[1, 2], bodies=[b"x" * 20_000]).SerializeToString()

    assert shape(pb.PutRequest).wire_fault_of(data[:end], 0) is None
