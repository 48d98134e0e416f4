"""`dledger user`: users of a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.common import EXIT_FAILED, EXIT_USAGE, fail, help_of, notes

user_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Users of a broker with access control.")


@user_app.callback()
def user() -> None:
    """Make what a broker needs for its users."""


def first(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user: letters, digits and _ . @ -")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Is created with mode 0600; it must not exist.")],
    *,
    is_generated: Annotated[
        bool, typer.Option("--generate", help="Make a random password and print it, in place of a question.")
    ] = False,
) -> None:
    """Make the file of a broker's first user, an administrator.

    The file has a verifier, from which the password cannot be recovered. Copy it to each node, and name it there with
    the setting first_user_file. The broker then refuses every call without a token or a certificate of a user.

    Examples:
        dledger user first admin first-user
        dledger server --config n0.toml --set first_user_file=first-user
    """
    import secrets

    from cluster.access.model import IllegalAccessChange, check_subject_name
    from dledger.authentication.verifier import SALT_SIZE, IllegalCredential, make_verifier

    try:
        check_subject_name("NAME", name)
        password = secrets.token_urlsafe(24) if is_generated else _asked_password(name)
        verifier = make_verifier(password, secrets.token_bytes(SALT_SIZE))
    except (IllegalAccessChange, IllegalCredential) as error:
        fail(str(error), EXIT_USAGE)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as output:
            output.write(f"{name}:{verifier.text()}\n")
    except OSError as error:
        fail(f"{file}: cannot be created: {error.strerror}", EXIT_FAILED)
    notes.print(f"{file}: the first user is {name}", highlight=False)
    if is_generated:
        # The only output, so that it can be piped; it is not stored anywhere.
        typer.echo(password)


def _asked_password(name: str) -> str:
    password: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return password


user_app.command("first", help=help_of(first))(first)
