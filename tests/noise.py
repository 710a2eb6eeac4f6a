# SPDX-License-Identifier: BSD-2-Clause
"""How noisy the machine is, for tests of live processes."""


def pressure_s():
    """For how long tasks have waited for a core (Linux PSI, "some"), seconds; None
    where the kernel does not say."""
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as f:
            return int(f.readline().rpartition("=")[2]) / 1e6
    except (OSError, ValueError):
        return None
