# SPDX-License-Identifier: BSD-2-Clause
"""A folder such as a reader has: a train.py (PyTorch's DataLoader on the simulated GPU) and
programs called pipetrace, python and, where there is none, sudo."""
import os
import signal
import subprocess

from blocks import TOP

TRAIN = """import os, runpy, sys
sys.path.insert(0, "{top}/tests/e2e")
sys.argv = ["train.py", "--seconds", "{seconds}", "--data", "{folder}/data", "--files", "8",
            "--seed", os.environ.get("RANK", "1"), "--cpu-ms-per-item", "4"]
runpy.run_path("{top}/tests/e2e/torch_job.py", run_name="__main__")
"""
# Longer than any short -d; `report --window 12s..20s` wants a long recording.
PROGRAMS = {"pipetrace": '[ "$1" = record ] && limit=22 || limit=11\n'
                         'exec timeout --preserve-status -s INT -k 30 $limit '
                         '"{top}/build/pipetrace" "$@"',
            "python": 'exec /usr/bin/python3 "$@"',
            "python3": 'exec /usr/bin/python3 "$@"',
            "sudo": 'exec "$@"',
            # Debian 12's takes its own defaults for -r and -t for None on its Python
            "torchrun": 'exec /usr/bin/python3 -m torch.distributed.run -r 1 -t 1 "$@"'}


def folder_for(tmp, seconds=200, programs=()):
    """Fills it; the environment with its programs. `programs`: more of them, by name."""
    os.makedirs(tmp + "/bin")
    os.makedirs(tmp + "/data")
    os.symlink(TOP + "/build", tmp + "/build")
    fill = {"top": TOP, "folder": tmp, "seconds": seconds}
    for name, text in dict(PROGRAMS, **dict(programs)).items():
        with open("%s/bin/%s" % (tmp, name), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text.format(**fill) + "\n")
        os.chmod(f.name, 0o755)
    with open(tmp + "/train.py", "w", encoding="utf-8") as f:
        f.write(TRAIN.format(**fill))
    return dict(os.environ, PATH="%s/bin:%s" % (tmp, os.environ["PATH"]), LC_ALL="C.UTF-8")


def start(argv, **more):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **more)


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
