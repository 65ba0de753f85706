"""Whether the workspace lies where other machines may write too: said by the kernel (statfs(2))."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_KINDS = {
    0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x01021997: "9p", 0x65735546: "FUSE",
    0x00C36400: "Ceph", 0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x0BD00BD0: "Lustre",
    0x01161970: "GFS2", 0x7461636F: "OCFS2", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x786F4256: "vboxsf",
}  # fmt: skip
"""File systems that another machine, or a program, may change behind the kernel's back, by `f_type` (magic.h)."""
_ENOUGH = 512
"""Bytes: more than any `struct statfs`; its first member, a long, is `f_type`."""


def network_kind(path: Path) -> str:
    """The name of the network (or FUSE) file system that `path` is on; empty if it is a local one, or not known."""
    answer = ctypes.create_string_buffer(_ENOUGH)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), answer) != 0:
        return ""
    return _KINDS.get(ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF, "")
