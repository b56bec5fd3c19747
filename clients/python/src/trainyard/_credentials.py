"""Finds the controller and the credential that is shown to the controller.

The rules are those of docs/command_line.md. The command line follows the same rules in
security/credentials.cc.
"""
from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NamedTuple, TypeVar

from trainyard.errors import FailedPrecondition, InvalidArgument, NotFound

_MAX_SECRET_BYTES = 64 << 10
_MAX_AUTHORITY_BYTES = 1 << 20
_Contents = TypeVar("_Contents", str, bytes)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        # A name may begin with 127, too.
        return self.host == "::1" or re.fullmatch(r"127\.[0-9.]*", self.host) is not None


def parse_address(text: str) -> Address:
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise InvalidArgument(
            f"address {text!r}: wanted HOST:PORT, as 127.0.0.1:7070 or [::1]:7070")
    host = match[1] or match[2]
    return Address("127.0.0.1" if host == "localhost" else host, int(match[3]))


@dataclass(frozen=True)
class Credential:
    """The token that goes with each call, and the authorities that prove the controller."""

    token: str = ""  # Empty: no token.
    authorities: bytes = b""  # PEM. Empty: no TLS, which is only for loopback.

    def __repr__(self) -> str:
        return "Credential(...)"


class Places:
    """Where the caller's credential lies. The environment is read once, here."""

    def __init__(self, token: str | os.PathLike[str] | None,
                 authority: str | os.PathLike[str] | None):
        environment = os.environ
        self._token = token if isinstance(token, str) else None
        token_file = token if isinstance(token, os.PathLike) else environment.get(
            "TRAINYARD_TOKEN_FILE")
        self._token_file = Path(token_file) if token_file else None
        authority = authority or environment.get("TRAINYARD_AUTHORITY")
        self._authority_file = Path(authority) if authority else None
        self._directory = _config_directory()
        # Kubernetes shows a pod's secrets to the pod's group, which has no members elsewhere.
        in_pod = "KUBERNETES_SERVICE_HOST" in environment
        self._forbidden = stat.S_IRWXO | (stat.S_IRWXG & ~stat.S_IRGRP if in_pod else stat.S_IRWXG)

    def find(self, controller: Address) -> Credential:
        """Returns the credential that is shown to this controller now.

        Raises FailedPrecondition if the address is not on loopback and no authority is known for
        the controller, or if others may read a file with a token. Raises NotFound if a named file
        does not exist.
        """
        authorities = self._authorities(controller)
        if not authorities and not controller.loopback:
            raise FailedPrecondition(
                f"no authority is known that proves the controller at {controller}: run "
                f"'trainyard login {controller}', or name its authority's certificate with "
                "Client(authority=...) or TRAINYARD_AUTHORITY")
        return Credential(self._find_token(controller), authorities)

    def _authorities(self, controller: Address) -> bytes:
        if self._authority_file is not None:
            return _named(_read, self._authority_file)
        if self._directory is None:
            return b""
        return _read(self._directory / "controllers" / str(controller) / "authority.pem") or b""

    def _find_token(self, controller: Address) -> str:
        if self._token is not None:
            return _token_of(self._token, "token")
        if self._token_file is not None:
            named = _named(lambda path: _read_secret(path, self._forbidden), self._token_file)
            return _token_of(named, str(self._token_file))
        if self._directory is None:
            return ""
        places = [self._directory / "controllers" / str(controller) / "token"]
        if controller.loopback:
            places.append(self._directory / "loopback" / str(controller))
        for place in places:
            text = _read_secret(place)
            if text is not None:
                return _token_of(text, str(place))
        return ""


def _config_directory() -> Path | None:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):
        return Path(base, "trainyard")
    home = os.environ.get("HOME", "")
    return Path(home, ".config/trainyard") if home.startswith("/") else None


def _read(path: Path) -> bytes | None:
    """Returns the contents, or None if there is no such file."""
    try:
        with open(path, "rb") as file:
            contents = file.read(_MAX_AUTHORITY_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FailedPrecondition(f"{path} cannot be read: {error.strerror}") from error
    if len(contents) > _MAX_AUTHORITY_BYTES:
        raise FailedPrecondition(f"{path} is too large: more than {_MAX_AUTHORITY_BYTES} bytes")
    return contents


def _read_secret(path: Path, forbidden: int = stat.S_IRWXG | stat.S_IRWXO) -> str | None:
    """Does the same as _read, for a file whose mode has none of the `forbidden` bits.

    The function checks the open file, not the path.
    """
    try:
        # Without O_NONBLOCK, to open a named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FailedPrecondition(f"{path} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise FailedPrecondition(
                f"{path} is not a regular file; tokens are read from those alone")
        if info.st_uid not in (0, os.geteuid()):
            raise FailedPrecondition(
                f"{path} belongs to user {info.st_uid}, who could read or replace the secrets of "
                f"user {os.geteuid()}. If the contents are trusted, run: chown {os.geteuid()} "
                f"'{path}'")
        if info.st_mode & forbidden:
            raise FailedPrecondition(
                f"{path} has mode {info.st_mode & 0o7777:04o}, which gives others than its owner a "
                f"right to it. Run: chmod 600 '{path}'")
        contents = file.read(_MAX_SECRET_BYTES + 1)
    if len(contents) > _MAX_SECRET_BYTES:
        raise FailedPrecondition(f"{path} is too large: more than {_MAX_SECRET_BYTES} bytes")
    return contents.decode("utf-8", "replace")


def _named(read: Callable[[Path], _Contents | None], path: Path) -> _Contents:
    contents = read(path)
    if contents is None:
        raise NotFound(f"{path}: there is no such file")
    return contents


def _token_of(text: str, place: str) -> str:
    """Returns the token in a text that may have the authority's fingerprint, too.

    Errors do not quote the text.
    """
    words = [word for word in text.split() if not word.startswith("sha256:")]
    if len(words) != 1:
        raise FailedPrecondition(f"{place}: wanted one token, found {len(words)} words")
    if not re.fullmatch(r"[!-~]+", words[0]):
        raise FailedPrecondition(f"{place}: a token has no other characters than ASCII's")
    return words[0]
