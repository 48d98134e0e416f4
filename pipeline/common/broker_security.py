"""How a process of the pipeline secures its connections to brokers: by the variables of the command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cluster.client.security_files import security_of_environment
from dledger.security.errors import CertificateFault
from pipeline.common.errors import SecurityUnusable

if TYPE_CHECKING:
    from dledger.security.settings import Security


def broker_security() -> Security:
    """Return the security of connections to brokers and name servers; executors have an environment of their own.

    Raises:
        SecurityUnusable: a file that the environment names cannot be used.
    """
    try:
        return security_of_environment(os.environ)
    except (CertificateFault, ValueError) as error:
        raise SecurityUnusable(str(error)) from error
