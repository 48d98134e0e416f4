"""Planted bugs of TLS of the ports for RocketMQ's clients, and of a front's calls to the leader."""

from cluster.config import fronts
from cluster.fronts import leader_link
from cluster.fronts.leader_link import LeaderLink
from cluster.remoting import server
from cluster.remoting.server import RemotingServer
from cluster.server import security
from dledger.security.server_port import PortContexts
from tests.mutants.mutant import Mutant, Tests

PORT = "tests/integration/cluster/remoting/test_tls.py::"
LINK = "tests/integration/cluster/fronts/test_leader_link.py::"
SETTINGS = "tests/unit/cluster/config/test_rocketmq_port.py::"
LOADED = "tests/unit/cluster/server/test_security.py::"

make_server = RemotingServer.__init__
current_context = PortContexts.current


def plain_connection_is_served_at_a_port_with_tls(patch):
    def lenient(self, *parts, **named):
        make_server(self, *parts, **named | {"is_permissive": True})

    patch.setattr(RemotingServer, "__init__", lenient)


def handshake_is_read_as_a_frame_at_a_permissive_port(patch):
    patch.setattr(server, "TLS_HANDSHAKE", 0x17)


def port_keeps_the_certificate_that_it_began_with(patch):
    patch.setattr(PortContexts, "current", lambda self: self._context or current_context(self))


def front_calls_the_leader_with_the_rights_of_its_node(patch):
    patch.setattr(leader_link, "with_token", lambda security, _token: security)


def link_keeps_the_certificates_that_it_began_with(patch):
    patch.setattr(LeaderLink, "_next_security", lambda self: getattr(self, "_used", None) or self._security())


def calls_in_progress_end_with_their_certificates(patch):
    async def at_once(self, connections):
        if connections is not self._current:
            await connections.nodes.close()

    patch.setattr(LeaderLink, "_close_unused", at_once)


def port_without_certificates_opens_beside_a_mutual_one_without_users(patch):
    patch.setattr(fronts, "open_fronts", lambda _options: [])


def official_clients_must_show_certificates_if_our_own_must(patch):
    patch.setattr(security, "WithoutClientCertificates", lambda current: current)


MUTANTS = [
    Mutant(
        plain_connection_is_served_at_a_port_with_tls,
        "a port with TLS refuses plain connections",
        Tests(PORT + "test_a_plain_connection_is_refused_before_its_request_is_read_and_the_log_names_the_remedy"),
    ),
    Mutant(
        handshake_is_read_as_a_frame_at_a_permissive_port,
        "a permissive port serves both",
        Tests(PORT + "test_a_permissive_port_distinguishes_tls_from_plain_frames_by_the_first_byte"),
    ),
    Mutant(
        port_keeps_the_certificate_that_it_began_with,
        "changed certificates are used",
        Tests(PORT + "test_a_changed_certificate_is_shown_to_new_connections_and_open_ones_stay"),
    ),
    Mutant(
        front_calls_the_leader_with_the_rights_of_its_node,
        "a front has no rights of its own",
        Tests(LINK + "test_a_call_shows_the_certificate_of_the_node_and_the_token_of_the_client"),
    ),
    Mutant(
        link_keeps_the_certificates_that_it_began_with,
        "changed certificates are used",
        Tests(LINK + "test_after_a_change_of_certificates_new_calls_show_the_new_one_and_old_calls_end_undisturbed"),
    ),
    Mutant(
        calls_in_progress_end_with_their_certificates,
        "a change of certificates disturbs no call",
        Tests(LINK + "test_after_a_change_of_certificates_new_calls_show_the_new_one_and_old_calls_end_undisturbed"),
    ),
    Mutant(
        port_without_certificates_opens_beside_a_mutual_one_without_users,
        "every port authenticates its clients where one does",
        Tests(SETTINGS + "test_the_port_of_the_remoting_protocol_has_the_same_bounds"),
    ),
    Mutant(
        official_clients_must_show_certificates_if_our_own_must,
        "clients that have no certificates are served",
        Tests(
            LOADED + "test_ports_for_rocketmqs_clients_demand_no_certificate_and_call_the_leader_with_that_of_the_node"
        ),
    ),
]
