"""`raftsched secret`: what the targets of jobs need and nobody reads again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.spec import pairs
from ..lazy import ExampleGroup
from ..names import SECRET
from ..options import command
from ..session import Invocation, many

NAME = click.argument("name", type=SECRET)
READ_MAX = 1 << 20
EXAMPLE = "raftsched secret put api-key --from-file api-key.txt"


@click.group(
    cls=ExampleGroup,
    examples=(
        EXAMPLE,
        "raftsched job update report --header 'Authorization: Bearer secret://api-key'",
    ),
)
def secret() -> None:
    """Secrets for targets of jobs: encrypted, and shown to nobody.

    A job names one as secret://NAME in the value of a header (http), of metadata
    (grpc) or of a variable (shell). The worker puts it in.
    """


@command(secret, "put", EXAMPLE, "pass show api | raftsched secret put api-key --from-file -",
         writes=True)  # fmt: skip
@click.argument("name")
@click.option("--from-file", "path", metavar="FILE", help="The file with its value; - is stdin.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of it; can be repeated."
)
@click.option("--keep-value", is_flag=True, help="The value stays, the labels are changed.")
@click.option("--etag", default="", help="It is done only to this version of the secret.")
def put(
    session: Invocation, name: str, path: str | None, labels: tuple[str, ...], keep_value: bool,
    etag: str,
) -> None:  # fmt: skip
    """Create a secret, or replace its value and labels.

    Without --from-file it asks for the value, which is not shown. It is never an
    argument, since others on this machine see those. The line end behind a value
    of one line is left out.
    """
    if keep_value and path is not None:
        raise wrong_use("--keep-value with --from-file", "it is one or the other", EXAMPLE)
    wanted = m.secret_pb2.Secret(
        namespace=session.namespace, name=name, labels=pairs("--label", labels), etag=etag
    )
    request = session.write(m.secret_pb2.PutSecretRequest(secret=wanted))
    if not keep_value:
        request.value = value_in(path) if path is not None else typed(name)
    made = session.ask(request, m.secret_pb2.Secret, f"put secret {name}")
    text = f"Secret {name} has value {made.value_version}, under the key {made.key_id}."
    session.done(made, text, then=f"raftsched job update JOB --header 'X-Key: secret://{name}'")


def value_in(path: str) -> str:
    """What a file or stdin holds; no word of a fault repeats it."""
    name = "stdin" if path == "-" else path
    try:
        if path == "-":
            data = sys.stdin.buffer.read(READ_MAX)
        else:
            with Path(path).open("rb") as opened:
                data = opened.read(READ_MAX)
        text = data.decode()
    except OSError as error:
        raise wrong_use(f"{name} cannot be read: {error.strerror}", "", EXAMPLE) from error
    except UnicodeDecodeError:
        raise wrong_use(f"{name} is no text in UTF-8", "", "put it there in base64") from None
    return checked(without_line_end(text), name)


def without_line_end(text: str) -> str:
    """Editors and `echo` end a line; a key of many lines keeps its last one."""
    line = text.removesuffix("\n").removesuffix("\r")
    return text if "\n" in line else line


def typed(name: str) -> str:
    if not (sys.stdin and sys.stdin.isatty()):
        raise wrong_use(
            f"no value for the secret {name}", "there is no terminal to ask on",
            f"raftsched secret put {name} --from-file -",
        )  # fmt: skip
    text: str = click.prompt(f"Value of {name}", hide_input=True, err=True)
    return checked(text, "what was typed")


def checked(text: str, where: str) -> str:
    if not text:
        raise wrong_use(f"{where} is empty", "a secret has a value", EXAMPLE)
    return text


@command(secret, "list", "raftsched secret list", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List secrets by name, without their values."""
    request = m.secret_pb2.ListSecretsRequest(namespace=session.namespace)
    none = f"No secrets in {session.namespace}."
    session.show_list(
        request, m.secret_pb2.ListSecretsResponse, "secrets", "list secrets", empty=none
    )


@command(secret, "get", "raftsched secret get api-key -o yaml", reads=True)
@NAME
def get(session: Invocation, name: str) -> None:
    """Show what is known of a secret: never its value."""
    request = m.secret_pb2.GetSecretRequest(namespace=session.namespace, secret=name)
    session.out.one(session.read(request, m.secret_pb2.Secret, f"get secret {name}"))


@command(secret, "delete", "raftsched secret delete api-key --yes", writes=True, destroys=True)
@NAME
@click.option(
    "--force", is_flag=True, help="It is deleted while jobs name it: their attempts fail."
)
@click.option("--etag", default="", help="It is done only to this version of the secret.")
def delete(session: Invocation, name: str, force: bool, etag: str) -> None:
    """Delete a secret that no job names."""
    session.confirm(f"Delete secret {name}?")
    request = session.write(
        m.secret_pb2.DeleteSecretRequest(
            namespace=session.namespace, secret=name, etag=etag, force=force
        )
    )
    answer = session.ask(request, m.secret_pb2.DeleteSecretResponse, f"delete secret {name}")
    session.done(answer, f"Secret {name} deleted.")


@command(secret, "rekey", "raftsched secret rekey", writes=True)
def rekey(session: Invocation) -> None:
    """Encrypt all secrets of the cluster under the newest key.

    To change keys: add the new one as the last line of the key file of all nodes,
    then make it the first one on all of them, then this. After that the older ones
    are needed for backups alone.
    """
    rekeyed = unopened = 0
    missing: set[str] = set()
    token = ""
    while True:
        request = session.write(m.secret_pb2.RekeySecretsRequest(page_token=token))
        step = session.ask(request, m.secret_pb2.RekeySecretsResponse, "rekey secrets")
        rekeyed, unopened = rekeyed + step.rekeyed, unopened + step.unopened
        missing.update(step.missing_key_ids)
        token = step.next_page_token
        if not token:
            break
    text = f"{many(rekeyed, 'secret')} encrypted under the key {step.key_id}."
    if unopened:
        keys = f"; they need {', '.join(sorted(missing))}" if missing else "; try again"
        text += f" {many(unopened, 'secret')} not{keys}."
    session.done(
        m.secret_pb2.RekeySecretsResponse(
            rekeyed=rekeyed, unopened=unopened, key_id=step.key_id, missing_key_ids=sorted(missing)
        ),
        text,
    )
