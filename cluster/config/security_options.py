"""The options of a node's security: TLS of its ports, other nodes, rights by certificate, quotas, and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from cluster.config.audit_settings import AUDIT_FILE_SIZE_BYTES, AUDIT_FILES_MAX, AUDIT_KEEP_DAYS
from cluster.config.log_callers import parse_users

_GIB = 1 << 30


class SecurityOptions(BaseModel):
    """The options; nodes of raw entries and of brokers have the same."""

    model_config = ConfigDict(extra="forbid", strict=True, validate_assignment=True)

    client_tls: Literal["off", "on", "mutual"] = Field(
        default="off",
        description="TLS on client_address and frame_address. off: plain connections. on: this node presents a "
        "certificate. mutual: clients must present one of tls_authority_file, too. For connections between nodes see "
        "peer_security. With "
        "name_servers name_server_tls must be on, too.",
    )
    metrics_tls: Literal["off", "on", "mutual"] = Field(
        default="off",
        description="TLS on metrics_address, with the same files. off: plain HTTP. on: this node presents a "
        "certificate. mutual: scrapers must present one of tls_authority_file, too.",
    )
    insecure: Literal["none", "metrics", "all"] = Field(
        default="none",
        description="Ports that may be plain, or without authentication of clients, on an address that other machines "
        "can reach. none: the node refuses to start with such a port. metrics: metrics_address. all, or --insecure: "
        "every port, for a network in which all machines are trusted.",
    )
    debuggable: bool = Field(
        default=False,
        description="true: other processes of the same user may read the memory of this node, with its keys, tokens "
        "and messages: a debugger (gdb), a profiler (py-spy). false: only root may; Linux only.",
    )
    peer_security: Literal["off", "secret", "tls"] = Field(
        default="off",
        description="Security of connections between nodes. off: plain connections, for loopback or a network that you "
        "trust. tls: each node presents a certificate of tls_authority_file with its name, and verifies that of the "
        "other node. secret: both nodes prove that they know the secret of peer_secret_file, and all bytes are "
        "encrypted; every node can then impersonate any other. Equal on all nodes, except during a change.",
    )
    peer_security_also: Literal["none", "off", "secret", "tls"] = Field(
        default="none",
        description="For a change of peer_security on one node after another: a second kind of connections that is "
        "accepted, and dialed if the first kind fails. While one of the two is off, plain connections are possible, so "
        "remove this option after the change.",
    )
    peer_secret_file: str = Field(
        default="",
        examples=["certs/peers.secret"],
        description="The secret that all nodes of the group share, mode 0600; `dledger certs secret` creates it. "
        "During a change two lines: the first is used to dial, both are accepted. Read again within ten seconds.",
    )
    tls_certificate_file: str = Field(
        default="",
        examples=["certs/default.node.n0.crt"],
        description="Certificate of this node in PEM, with intermediate ones after it; `dledger certs node` creates "
        "it. This file and the two others are read again within ten seconds after a change.",
    )
    tls_key_file: str = Field(
        default="",
        examples=["certs/default.node.n0.key"],
        description="Its private key, without a password, mode 0600.",
    )
    tls_authority_file: str = Field(
        default="",
        examples=["certs/authority.crt"],
        description="Certificates of the authority of clients and other nodes; two during a change of the authority.",
    )
    tls_revoked_file: str = Field(
        default="",
        examples=["certs/revoked"],
        description="Certificates that are refused, of users and of nodes, on all ports that demand certificates; "
        "`dledger certs revoke` writes it. Read again within ten seconds.",
    )
    audit: Literal["off", "admin", "all"] = Field(
        default="admin",
        description="What the audit log records. admin: administration, logins and refusals. all: also calls that read "
        "or write messages or entries, which costs speed. off: nothing.",
    )
    audit_dir: str = Field(
        default="",
        description="Directory of the audit log's files; made if absent. Empty: audit in store_base_dir.",
    )
    audit_file_size_bytes: int = Field(
        default=AUDIT_FILE_SIZE_BYTES,
        ge=64 << 10,
        le=_GIB,
        description="Size of one file of the audit log. There are three series of files: of changes, of refusals, and "
        "of the rest ...",
    )
    audit_files_max: int = Field(
        default=AUDIT_FILES_MAX,
        ge=2,
        le=1_000,
        description="... and each has this many files at most; the oldest is deleted.",
    )
    audit_keep_days: int = Field(
        default=AUDIT_KEEP_DAYS,
        ge=0,
        le=36_500,
        description="If a file of the audit log that has a younger record is deleted, because its series has too many "
        "files, the node logs audit_rotated_early. 0: never.",
    )
    quota_user_requests_per_s: int = Field(
        default=0,
        ge=0,
        description="Requests a second of one user at this node; more are refused with OVER_QUOTA and may be repeated. "
        "0: no limit.",
    )
    quota_user_bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Bytes a second of one user at this node, of requests and answers: requests above it are refused, "
        "answers of a stream are delayed. At least 65,536; 0: no limit.",
    )
    quota_address_requests_per_s: int = Field(
        default=0,
        ge=0,
        description="Requests a second of all clients of one address (of IPv6: of one network of 64 bits).",
    )
    quota_address_bytes_per_s: int = Field(
        default=0, ge=0, description="Bytes a second of all clients of one address. At least 65,536; 0: no limit."
    )
    log_administrators: Annotated[str, BeforeValidator(parse_users)] = Field(
        default="none",
        examples=["dledger://default/user/alice"],
        description="On a log of raw entries with client_tls = mutual: the users that may do everything, also change "
        "the members of the group. dledger://<group>/user/<name>, separated by commas; none; or all: every user whose "
        "certificate names this group. The group's nodes may always do everything. Equal on all nodes.",
    )
    log_writers: Annotated[str, BeforeValidator(parse_users)] = Field(
        default="all",
        examples=["dledger://default/user/alice"],
        description="The same for appends.",
    )
    log_readers: Annotated[str, BeforeValidator(parse_users)] = Field(
        default="all",
        examples=["dledger://default/user/alice"],
        description="The same for reads.",
    )
