"""How a program of the recipe ends when a file or folder fails it: with one line, what, where and what to do."""
import errno
import os
import sys

NO_ROOM, NOT_ALLOWED = "make room there, or take another folder", "take a folder that you may write to"
REMEDIES = {errno.ENOSPC: NO_ROOM, errno.EDQUOT: NO_ROOM, errno.EFBIG: NO_ROOM, errno.EROFS: NOT_ALLOWED,
            errno.EACCES: "take one that you may read and write", errno.EPERM: NOT_ALLOWED,
            errno.EEXIST: "a file stands where a folder is to be; take another folder",
            errno.ENOTDIR: "a file stands where a folder is to be; take another folder"}


def write(path, pieces):
    """Pieces of bytes to a file. A failed write does not know its file: it is told."""
    try:
        with open(path, "wb") as f:
            for piece in pieces:
                f.write(piece)
    except OSError as e:
        raise OSError(e.errno, e.strerror, path) from e


def run(main):
    name = os.path.basename(sys.argv[0])
    try:
        main()
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        sys.exit(f"{name}: {where}{e.strerror or e}; {REMEDIES.get(e.errno, 'is it there, and the right one?')}")
    except KeyboardInterrupt:
        sys.exit(130)
