"""Checks of relations between options that are individually valid.

A check runs only if all options that it compares are individually valid, so that each fault is reported once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cluster.config.exposure import HOW_TO_LISTEN, exposed_ports
from cluster.config.quotas import BYTES_PER_S_MIN
from dledger.config import MEMBERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from cluster.config.broker_options import ServerOptions
    from dledger.config import Address

    # Yields (option to correct, fault).
    Check = Callable[[ServerOptions], Iterator[tuple[str, str]]]


def relation_faults(options: ServerOptions, good: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yield every fault between options: the option to correct, and the text of the fault.

    Args:
        options: the options; those not in `good` must not be read.
        good: names of the options that are set, or have a default, and are individually valid.
    """
    for names, check in _CHECKS:
        if names <= good:
            yield from check(options)


def _self_is_a_peer(options: ServerOptions) -> Iterator[tuple[str, str]]:
    ids = [peer.id for peer in options.peers]
    if options.self_id not in ids:
        yield "self_id", f"expected one of the ids in peers ({', '.join(ids)}), found {options.self_id!r}"


def _joining_node_knows_others(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if options.is_joining and len(options.peers) < 2:
        yield "is_joining", "expected members of the group in peers besides this node: list all that you know"


def _peers_are_few(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if len(options.peers) > MEMBERS_MAX:
        yield "peers", f"expected at most {MEMBERS_MAX} peers, found {len(options.peers)}"


def _quotas_of_bytes_are_usable(options: ServerOptions) -> Iterator[tuple[str, str]]:
    for name in ("quota_user_bytes_per_s", "quota_address_bytes_per_s"):
        rate = getattr(options, name)
        if 0 < rate < BYTES_PER_S_MIN:
            yield name, f"expected 0 or at least {BYTES_PER_S_MIN}, found {rate}: one answer may have 4 MiB"


def _peers_differ(options: ServerOptions) -> Iterator[tuple[str, str]]:
    for peer_id, count in Counter(peer.id for peer in options.peers).items():
        if count > 1:
            yield "peers", f"the id {peer_id!r} is listed {count} times: every node needs its own"
    for place, count in Counter(_place(peer.address) for peer in options.peers).items():
        if count > 1:
            yield "peers", f"the address {place} is listed {count} times: every node needs its own"


_PORTS = ("client_address", "frame_address", "metrics_address", "rocketmq_grpc_address", "rocketmq_remoting_address")


def _ports_differ(options: ServerOptions) -> Iterator[tuple[str, str]]:
    taken = {_place(peer.address): f"peer {peer.id}" for peer in options.peers}
    for name in _PORTS:
        address = getattr(options, name)
        if address is None:
            continue
        place = _place(address)
        if place in taken:
            yield name, f"{place} is used by {taken[place]}: choose another port"
        taken[place] = name


def _place(address: Address) -> str:
    """Return the address in a normal form, in which two names of loopback are equal."""
    host = address.host.lower()
    return f"{'127.0.0.1' if host == 'localhost' else host}:{address.port}"


def _heartbeats_fit(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if options.heart_beat_time_interval_ms >= options.min_election_timeout_ms:
        expected = (
            f"expected less than min_election_timeout_ms ({options.min_election_timeout_ms}), ideally a fifth of it"
        )
        found = f"found {options.heart_beat_time_interval_ms}: followers would depose every leader"
        yield "heart_beat_time_interval_ms", f"{expected}, {found}"


def _timeouts_spread(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if options.min_election_timeout_ms >= options.max_election_timeout_ms:
        expected = f"expected more than min_election_timeout_ms ({options.min_election_timeout_ms}), ideally twice that"
        found = f"found {options.max_election_timeout_ms}: nodes would often start elections together"
        yield "max_election_timeout_ms", f"{expected}, {found}"


def _clean_after_check(options: ServerOptions) -> Iterator[tuple[str, str]]:
    check, force = options.disk_space_ratio_to_check_expired, options.disk_space_ratio_to_force_clean
    if check > force:
        text = f"expected at most disk_space_ratio_to_force_clean ({force}), found {check}: expired files go first"
        yield "disk_space_ratio_to_check_expired", text


def _bounds_nest(options: ServerOptions) -> Iterator[tuple[str, str]]:
    one, total = options.max_in_flight_size_bytes, options.max_in_flight_total_size_bytes
    if one > total:
        expected = f"expected at most max_in_flight_total_size_bytes ({total})"
        yield "max_in_flight_size_bytes", f"{expected}, found {one}"


def _tls_has_files(options: ServerOptions) -> Iterator[tuple[str, str]]:
    users = []
    if "tls" in (options.peer_security, options.peer_security_also):
        users.append("TLS between nodes")
    if options.name_server_tls == "on":
        users.append("name_server_tls = 'on'")
    modes = {"client_tls": options.client_tls, "metrics_tls": options.metrics_tls}
    is_authority_needed = bool(users) or "mutual" in modes.values()
    users += [f"{name} = {mode!r}" for name, mode in modes.items() if mode != "off"]
    if not users:
        return
    needed = ["tls_certificate_file", "tls_key_file"]
    for name in [*needed, "tls_authority_file"] if is_authority_needed else needed:
        if not getattr(options, name):
            yield name, f"must be set for {' and '.join(users)}; `dledger certs` creates such files"


def _revoked_file_has_effect(options: ServerOptions) -> Iterator[tuple[str, str]]:
    peers = "tls" in (options.peer_security, options.peer_security_also)
    if options.tls_revoked_file and not peers and "mutual" not in (options.client_tls, options.metrics_tls):
        yield (
            "tls_revoked_file",
            "expected a port that demands certificates: client_tls = mutual, or peer_security = tls",
        )


def _secret_has_file(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if "secret" in (options.peer_security, options.peer_security_also) and not options.peer_secret_file:
        yield "peer_secret_file", "must be set for a secret between nodes; `dledger certs secret` makes the file"


def _exposed_ports_are_meant(options: ServerOptions) -> Iterator[tuple[str, str]]:
    for port in exposed_ports(options):
        if options.insecure == "none" or (options.insecure == "metrics" and port.option != "metrics_address"):
            yield port.option, f"{port}: {port.remedy}, or {HOW_TO_LISTEN}"


def _kinds_of_peers_differ(options: ServerOptions) -> Iterator[tuple[str, str]]:
    if options.peer_security_also == options.peer_security:
        expected = f"expected none, or another value than peer_security ({options.peer_security})"
        yield "peer_security_also", f"{expected}, found {options.peer_security_also}"


def _check_name_servers_tls(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Clients dial name servers, and the nodes that these name, with the same security; so do name servers."""
    if options.client_tls != "off" and options.name_servers and options.name_server_tls == "off":
        yield "name_server_tls", f"expected on with name_servers and client_tls = {options.client_tls!r}, found off"


def _users_of_log_are_known(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Without certificates a list of users would protect nothing, and a broker has users of its own."""
    for name in _USERS_OF_LOG:
        if getattr(options, name) == type(options).model_fields[name].default:
            continue
        if options.broker:
            yield (
                name,
                "expected only on a log of raw entries: a broker has users (`dledger user`)",
            )
        elif options.client_tls != "mutual":
            yield (
                name,
                f"expected client_tls = mutual, which shows users by their certificates, found {options.client_tls}",
            )


def _front_is_open(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """The ports for RocketMQ's clients have no TLS, so they must not be open beside one that has."""
    if options.client_tls == "off":
        return
    for name in ("rocketmq_grpc_address", "rocketmq_remoting_address"):
        if getattr(options, name) is not None:
            yield name, f"expected off with client_tls = {options.client_tls!r}: this port has no TLS yet"


def _remoting_peers_have_self(options: ServerOptions) -> Iterator[tuple[str, str]]:
    """Clients learn the addresses of all nodes from each node, its own included."""
    ids = [peer.id for peer in options.rocketmq_remoting_peers]
    if ids and (options.self_id not in ids or len(ids) != len(set(ids))):
        yield "rocketmq_remoting_peers", f"expected each node once, with {options.self_id}, found {', '.join(ids)}"


_USERS_OF_LOG = ("log_administrators", "log_writers", "log_readers")
_CHECKS: tuple[tuple[frozenset[str], Check], ...] = (
    (frozenset({"self_id", "peers"}), _self_is_a_peer),
    (frozenset({"is_joining", "peers"}), _joining_node_knows_others),
    (frozenset({"peers"}), _peers_are_few),
    (frozenset({"peers"}), _peers_differ),
    (frozenset({"quota_user_bytes_per_s", "quota_address_bytes_per_s"}), _quotas_of_bytes_are_usable),
    (frozenset({"peers", *_PORTS}), _ports_differ),
    (frozenset({"heart_beat_time_interval_ms", "min_election_timeout_ms"}), _heartbeats_fit),
    (frozenset({"min_election_timeout_ms", "max_election_timeout_ms"}), _timeouts_spread),
    (frozenset({"disk_space_ratio_to_check_expired", "disk_space_ratio_to_force_clean"}), _clean_after_check),
    (
        frozenset(
            {
                "client_tls",
                "metrics_tls",
                "name_server_tls",
                "peer_security",
                "peer_security_also",
                "tls_certificate_file",
                "tls_key_file",
                "tls_authority_file",
            }
        ),
        _tls_has_files,
    ),
    (
        frozenset({"tls_revoked_file", "client_tls", "metrics_tls", "peer_security", "peer_security_also"}),
        _revoked_file_has_effect,
    ),
    (frozenset({"peer_security", "peer_security_also"}), _kinds_of_peers_differ),
    (
        frozenset(
            {
                "self_id",
                "peers",
                *_PORTS,
                "client_tls",
                "metrics_tls",
                "peer_security",
                "peer_security_also",
                "insecure",
            }
        ),
        _exposed_ports_are_meant,
    ),
    (frozenset({"peer_security", "peer_security_also", "peer_secret_file"}), _secret_has_file),
    (frozenset({"client_tls", "broker", *_USERS_OF_LOG}), _users_of_log_are_known),
    (frozenset({"client_tls", "name_servers", "name_server_tls"}), _check_name_servers_tls),
    (
        frozenset({"client_tls", "rocketmq_grpc_address", "rocketmq_remoting_address"}),
        _front_is_open,
    ),
    (frozenset({"self_id", "rocketmq_remoting_peers"}), _remoting_peers_have_self),
    (frozenset({"max_in_flight_size_bytes", "max_in_flight_total_size_bytes"}), _bounds_nest),
)
