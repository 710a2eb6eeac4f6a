# SPDX-License-Identifier: BSD-2-Clause
"""Kept recordings: unpacked within a bound, and reported by the program."""
import io
import json
import lzma
import os
import subprocess
import tarfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("PIPETRACE") or os.path.join(
    os.environ.get("BUILD", os.path.join(TOP, "build")), "pipetrace")
UNPACKED_MAX = 64 << 20


def unpacked(path):
    with lzma.open(path) as f:
        data = f.read(UNPACKED_MAX + 1)
    if len(data) > UNPACKED_MAX:
        raise ValueError("%s unpacks to more than %d bytes" % (path, UNPACKED_MAX))
    return data


def unpack(path, to):
    """A record stream, or the one of a stranger's files."""
    data = unpacked(path)
    if path.endswith(".tar.xz"):
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            streams = [m for m in t.getmembers() if m.isreg() and m.name.endswith(".raw")]
            if len(streams) != 1:
                raise ValueError("%s has %d record streams" % (path, len(streams)))
            data = t.extractfile(streams[0]).read()
    with open(to, "wb") as f:
        f.write(data)
    return to


def unpack_named(name, folder):
    """tests/NAME.raw.xz, in the folder."""
    return unpack(os.path.join(TOP, "tests", name + ".raw.xz"),
                  os.path.join(folder, name.replace("/", "-") + ".raw"))


def report(raw, program=PROGRAM):
    """Of a record stream, with each step."""
    done = subprocess.run([program, "report", "--raw-stream", raw, "--json", "-",
                           "--print-steps", "100000"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=90,
                          check=False)
    if done.returncode:
        raise ValueError("report ended with status %d: %s" % (
            done.returncode, done.stderr.decode("utf-8", "replace")[-200:].strip()))
    return json.loads(done.stdout)
