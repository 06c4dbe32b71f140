"""A file system in this process: the words of the kernel's FUSE, as far as a node needs them.

Read from /dev/fuse, answered from a `Platter` for each folder at the top. Nothing is cached by
names, so that what a cut leaves is seen by whoever opens it next.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from .platter import Inode, Platter

HEAD = struct.Struct("<IIQQIIIHH")
OUT = struct.Struct("<IiQ")
ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
FIRST, LATER_MINOR = 7, 31
WRITE_MAX = 1 << 20
REQUEST_MAX = WRITE_MAX + (64 << 10)
BLOCK = 4096
KEEP_SIZE = 1  # Of fallocate.
SIZE_SET = 1 << 3  # Of setattr,
MODE_SET = 1 << 0
NO_REPLACE = 1  # and of rename.
BIG_WRITES, ATOMIC_TRUNC, MAX_PAGES = 1 << 5, 1 << 3, 1 << 22
FORGET, BATCH_FORGET, INTERRUPT, DESTROY = 2, 42, 36, 38
libc = ctypes.CDLL(None, use_errno=True)


class KernelError(OSError):
    """What the kernel is to answer with an error number."""


def kernel_error(number: int) -> KernelError:
    return KernelError(number, os.strerror(number))


def mount(folder: Path) -> int:
    """Mount at a folder, for which this process must be root; return the descriptor."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"power", str(folder).encode(), b"fuse.power", 6, options) != 0:
        number = ctypes.get_errno()
        os.close(fd)
        raise OSError(number, os.strerror(number), str(folder))
    return fd


def unmount(folder: Path) -> None:
    """Let go, even if somebody has files open there."""
    libc.umount2(str(folder).encode(), 2)


class FuseFiles:
    """Answers the kernel. Numbers of files are never used twice."""

    def __init__(self, fd: int, platters: dict[str, Platter]) -> None:
        self.fd, self.platters = fd, platters
        self.top = Inode(is_folder=True, mode=0o755)
        self.nodes: dict[int, Inode] = {1: self.top}
        self.numbers: dict[int, int] = {id(self.top): 1}
        self.homes: dict[int, Platter | None] = {1: None}
        self.looked_up: dict[int, int] = {}
        self.count = 1
        self.calls: dict[int, Callable[[int, bytes], bytes]] = {
            1: self.lookup, 3: self.getattr, 4: self.setattr, 9: self.mkdir, 10: self.unlink,
            11: self.rmdir, 12: self.rename, 13: self.link, 14: self.open, 15: self.read,
            16: self.write, 17: self.statfs, 18: self.nothing, 20: self.fsync, 25: self.nothing,
            26: self.init, 27: self.open, 28: self.readdir, 29: self.nothing, 30: self.fsyncdir,
            34: self.nothing, 35: self.create, 43: self.fallocate, 45: self.rename2,
        }  # fmt: skip

    def answer_one(self) -> bool:
        """Answer one request; whether there will be more."""
        try:
            request = os.read(self.fd, REQUEST_MAX)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return True
            if error.errno == errno.ENODEV:
                return False
            raise
        code: int
        _, code, unique, node, *_ = HEAD.unpack_from(request)
        body = request[HEAD.size :]
        if code in (FORGET, BATCH_FORGET):
            self.forget(code, node, body)
            return True
        if code == INTERRUPT:
            return True
        number, answer = 0, b""
        try:
            call = self.calls.get(code)
            if call is None:
                raise kernel_error(errno.ENOSYS)
            answer = call(node, body)
        except KernelError as error:
            number = -(error.errno or errno.EIO)
        os.write(self.fd, OUT.pack(OUT.size + len(answer), number, unique) + answer)
        return code != DESTROY

    # Who is who.

    def _node(self, number: int) -> Inode:
        return self.nodes[number]

    def _platter(self, number: int) -> Platter:
        home = self.homes[number]
        if home is None:
            raise kernel_error(errno.EPERM)
        home.operation()
        return home

    def _child(self, number: int, name: str) -> Inode:
        if number == 1:
            platter = self.platters.get(name)
            if platter is None:
                raise kernel_error(errno.ENOENT)
            return platter.root
        child = self._node(number).names.get(name)
        if child is None:
            raise kernel_error(errno.ENOENT)
        return child

    def _entry(self, parent: int, name: str, node: Inode) -> bytes:
        number = self.numbers.get(id(node))
        if number is None:
            self.count += 1
            number = self.numbers[id(node)] = self.count
            self.nodes[number] = node
        home = self.platters[name] if parent == 1 else self.homes[parent]
        self.homes[number] = home
        self.looked_up[number] = self.looked_up.get(number, 0) + 1
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self._attr(number)

    def _attr(self, number: int) -> bytes:
        node = self._node(number)
        kind = stat.S_IFDIR if node.is_folder else stat.S_IFREG
        size = 0 if node.is_folder else len(node.seen)
        links = 2 if node.is_folder else node.links
        return ATTR.pack(
            number, size, -(-size // 512), 0, 0, 0, 0, 0, 0, kind | node.mode, links, 0, 0, 0,
            BLOCK, 0,
        )  # fmt: skip

    def forget(self, code: int, number: int, body: bytes) -> None:
        if code == FORGET:
            items = [(number, struct.unpack_from("<Q", body)[0])]
        else:
            (count,) = struct.unpack_from("<I", body)
            items = [struct.unpack_from("<QQ", body, 8 + 16 * n) for n in range(count)]
        for one, times in items:
            left = self.looked_up.get(one, 0) - times
            self.looked_up[one] = left
            if left <= 0 and one != 1 and one in self.nodes:
                del self.numbers[id(self.nodes.pop(one))], self.looked_up[one]
                del self.homes[one]

    # Calls.

    def init(self, number: int, body: bytes) -> bytes:
        major, _, readahead, flags = struct.unpack_from("<IIII", body)
        if major != FIRST:
            raise kernel_error(errno.EPROTO)
        flags &= BIG_WRITES | ATOMIC_TRUNC | MAX_PAGES
        return struct.pack(
            "<IIIIHHIIHHIII", FIRST, LATER_MINOR, readahead, flags, 16, 12, WRITE_MAX, 1,
            WRITE_MAX // BLOCK, 0, 0, 0, 0,
        ) + bytes(20)  # fmt: skip

    def lookup(self, number: int, body: bytes) -> bytes:
        name = text(body)
        return self._entry(number, name, self._child(number, name))

    def getattr(self, number: int, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attr(number)

    def setattr(self, number: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        node = self._node(number)
        if valid & SIZE_SET:
            self._platter(number)
            node.resize(size)
        if valid & MODE_SET:
            (mode,) = struct.unpack_from("<I", body, 68)
            node.mode = stat.S_IMODE(mode)
        return self.getattr(number, b"")

    def _make(self, number: int, name: str, *, is_folder: bool, mode: int) -> bytes:
        platter, folder = self._platter(number), self._node(number)
        if name in folder.names:
            raise kernel_error(errno.EEXIST)
        node = Inode(is_folder=is_folder, mode=stat.S_IMODE(mode))
        platter.change((folder, name, node))
        return self._entry(number, name, node)

    def mkdir(self, number: int, body: bytes) -> bytes:
        mode, _ = struct.unpack_from("<II", body)
        return self._make(number, text(body[8:]), is_folder=True, mode=mode)

    def create(self, number: int, body: bytes) -> bytes:
        _, mode, _, _ = struct.unpack_from("<IIII", body)
        made = self._make(number, text(body[16:]), is_folder=False, mode=mode)
        return made + self.open(number, b"")

    def unlink(self, number: int, body: bytes) -> bytes:
        name = text(body)
        if self._child(number, name).is_folder:
            raise kernel_error(errno.EISDIR)
        self._platter(number).change((self._node(number), name, None))
        return b""

    def rmdir(self, number: int, body: bytes) -> bytes:
        name = text(body)
        child = self._child(number, name)
        if not child.is_folder:
            raise kernel_error(errno.ENOTDIR)
        if child.names:
            raise kernel_error(errno.ENOTEMPTY)
        self._platter(number).change((self._node(number), name, None))
        return b""

    def rename(self, number: int, body: bytes) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        return self._rename(number, target, 0, body[8:])

    def rename2(self, number: int, body: bytes) -> bytes:
        target, flags, _ = struct.unpack_from("<QII", body)
        return self._rename(number, target, flags, body[16:])

    def _rename(self, number: int, target: int, flags: int, names: bytes) -> bytes:
        old, new, _ = names.decode().split("\0", 2)
        moved = self._child(number, old)
        there = self._node(target).names.get(new)
        if flags & ~NO_REPLACE:
            raise kernel_error(errno.EINVAL)
        if there is not None and flags & NO_REPLACE:
            raise kernel_error(errno.EEXIST)
        if there is not None and there.is_folder and there.names:
            raise kernel_error(errno.ENOTEMPTY)
        platter = self._platter(number)
        if there is not moved:
            platter.change((self._node(number), old, None), (self._node(target), new, moved))
        return b""

    def link(self, number: int, body: bytes) -> bytes:
        (old,) = struct.unpack_from("<Q", body)
        name, node = text(body[8:]), self._node(old)
        if name in self._node(number).names:
            raise kernel_error(errno.EEXIST)
        self._platter(number).change((self._node(number), name, node))
        return self._entry(number, name, node)

    def open(self, number: int, body: bytes) -> bytes:
        if body and struct.unpack_from("<I", body)[0] & os.O_TRUNC:
            self._platter(number)
            self._node(number).resize(0)
        return struct.pack("<QII", 0, 0, 0)

    def read(self, number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self._node(number).seen[offset : offset + size])

    def write(self, number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        self._platter(number)
        self._node(number).write(offset, body[40 : 40 + size])
        return struct.pack("<II", size, 0)

    def fallocate(self, number: int, body: bytes) -> bytes:
        _, offset, length, mode, _ = struct.unpack_from("<QQQII", body)
        if mode & ~KEEP_SIZE:
            raise kernel_error(errno.EOPNOTSUPP)
        self._platter(number)
        node = self._node(number)
        if not mode and offset + length > len(node.seen):
            node.resize(offset + length)
        return b""

    def fsync(self, number: int, body: bytes) -> bytes:
        self._platter(number)
        self._node(number).sync()
        return b""

    def fsyncdir(self, number: int, body: bytes) -> bytes:
        self._platter(number).sync_folder(self._node(number))
        return b""

    def readdir(self, number: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        names = list(self.platters) if number == 1 else list(self._node(number).names)
        listing = b""
        for at, name in enumerate(names[offset:], offset + 1):
            encoded = name.encode()
            node = self._child(number, name)
            kind = 4 if node.is_folder else 8
            entry = struct.pack("<QQII", self.numbers.get(id(node), 99), at, len(encoded), kind)
            entry += encoded
            entry += bytes(-len(entry) % 8)
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing

    def statfs(self, number: int, body: bytes) -> bytes:
        much = 1 << 24
        return struct.pack(
            "<QQQQQIIII", much, much, much, much, much, BLOCK, 255, BLOCK, 0
        ) + bytes(24)

    def nothing(self, number: int, body: bytes) -> bytes:
        return b""


def text(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()
