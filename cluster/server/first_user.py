"""The first user of a broker: an administrator from a file, created by the first leader that finds no user.

The file has one line, `NAME:SCRAM-SHA-256$ROUNDS:SALT$STORED_KEY:SERVER_KEY`, and mode 0600; `dledger user first`
creates it. It is read at each start while the broker has no user, and ignored afterwards. No RPC creates the first
user, because an attacker could call it first.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

from cluster.access.users import UserSettings
from cluster.state.access_commands import SetTokenKey, SetUser
from dledger.authentication.tokens import KEY_SIZE
from dledger.authentication.verifier import IllegalCredential, verifier_of_text
from dledger.errors import DLedgerError
from dledger.security.secret_files import read_secret_file
from store.errors import IllegalMessage, StoreError

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore
    from cluster.state.broker_state import BrokerState

_SIZE_BYTES_MAX: Final = 1_024
_RETRY_S: Final = 0.5

logger = logging.getLogger(__name__)


class FirstUserUnusable(DLedgerError):
    """The file of the first user cannot be used, so the broker would have no user: correct it, or create a new one."""


def read_first_user(path: str) -> UserSettings:
    """Return the administrator in a file.

    Raises:
        FirstUserUnusable: the file is missing, readable by other users, or not in the expected format.
    """
    how = "`dledger user first NAME FILE` creates one"
    try:
        content = read_secret_file(path, _SIZE_BYTES_MAX)
    except OSError as error:
        raise FirstUserUnusable(f"{path}: expected the file of the first user: {error.strerror}; {how}") from error
    if len(content) > _SIZE_BYTES_MAX:
        raise FirstUserUnusable(f"{path}: expected one line NAME:VERIFIER, found more than that; {how}")
    name, separator, verifier = content.decode("ascii", errors="replace").strip().partition(":")
    try:
        user = UserSettings(name, is_super=True, verifier=verifier_of_text(verifier))
        user.check()
    except (IllegalCredential, IllegalMessage) as error:
        found = str(error) if separator else "something else"
        # The content of the file is not shown: it may be a password.
        raise FirstUserUnusable(f"{path}: expected one line NAME:VERIFIER, found {found}; {how}") from error
    return user


def first_user_of(path: str, state: BrokerState) -> UserSettings | None:
    """Return the administrator in the configured file; None: no file is configured.

    Raises:
        FirstUserUnusable: the broker has no user, and the file cannot be used.
    """
    if not path:
        return None
    try:
        return read_first_user(path)
    except FirstUserUnusable as error:
        # A broker that has users does not need the file, which may have been deleted.
        if not state.access.rules.is_enforced:
            raise
        logger.info("first_user_ignored error=%r: the broker has users", str(error))
        return None


async def create_first_user(core: BrokerCore, user: UserSettings) -> None:
    """Wait until the broker has a user; create this one if this node becomes leader and there is none."""
    replica = core.replica
    while not replica.state.access.rules.is_enforced:
        if replica.status().is_serving_puts:
            try:
                if not replica.state.access.token_keys:
                    await core.change(SetTokenKey(secrets.token_bytes(KEY_SIZE)))
                await core.change(SetUser(user, is_new=True))
            except (StoreError, DLedgerError) as error:
                logger.warning("first_user_not_created user=%s error=%r", user.name, str(error))
            else:
                logger.info("first_user_created user=%s", user.name)
                return
        await asyncio.sleep(_RETRY_S)
    logger.info("first_user_ignored user=%s: the broker has users", user.name)
