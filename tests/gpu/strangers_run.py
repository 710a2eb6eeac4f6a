# SPDX-License-Identifier: BSD-2-Clause
"""tests/strangers/run as a module, which it is not by its name."""
import importlib.machinery
import importlib.util
import os

HERE = os.path.dirname(os.path.abspath(__file__))
# before that module is imported: the scripts that register beside the strange jobs
os.environ["STRANGERS"] = " ".join(
    os.path.join(HERE, n)
    for n in ("real", "real_more", "real_third", "real_fourth", "real_fifth"))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def strangers():
    path = os.path.join(TOP, "tests/strangers/run")
    loader = importlib.machinery.SourceFileLoader("strangers_run", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
