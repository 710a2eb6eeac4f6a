# SPDX-License-Identifier: BSD-2-Clause
"""A reader of Perfetto traces that knows nothing of pipetrace's own .proto: it takes
the wire format apart by the field numbers of Perfetto's public definition.
"""
import struct

CLOCKS, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS = 6, 8, 10, 11, 12, 13
DEFAULTS, TRACK = 59, 60
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
MONOTONIC = 3


class Bad(Exception):
    pass


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Bad("a number of more than 64 bits")


def fields(data):
    """(number, value) of a message, in order."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                raise Bad("a message is cut")
        else:
            raise Bad("wire type %d" % kind)
        yield tag >> 3, value


def one(data, number, default=None):
    found = [v for n, v in fields(data) if n == number]
    return found[-1] if found else default


class Event:
    __slots__ = ("ts", "type", "track", "name", "cat", "out", "into", "args", "value")


class Trace:
    """tracks: {uuid: {name, parent, pid, tid, counter}}; events in file order."""

    def __init__(self, data):
        self.tracks, self.events, self.clocks, self.packets = {}, [], {}, 0
        self.clock, self.primary = None, None
        self.names, self.cats, self.keys, self.texts = {}, {}, {}, {}
        for number, packet in fields(data):
            if number != 1:
                raise Bad("field %d of a trace" % number)
            self.packets += 1
            self.packet(packet)

    def packet(self, data):
        p = dict(fields(data))
        if p.get(SEQUENCE) is None:
            raise Bad("a packet without a sequence")
        if DEFAULTS in p:
            if not p.get(FLAGS, 0) & 1:
                raise Bad("defaults that begin no state")
            self.clock = one(p[DEFAULTS], 58)
        if CLOCKS in p:
            self.primary = one(p[CLOCKS], 2)
            for n, v in fields(p[CLOCKS]):
                if n == 1:
                    self.clocks[one(v, 1)] = one(v, 2)
        if INTERNED in p:
            self.intern(p[INTERNED])
        if TRACK in p:
            self.track(p[TRACK])
        if EVENT in p:
            if not p.get(FLAGS, 0) & 2:
                raise Bad("an event that needs no state")
            self.events.append(self.event(p[TIMESTAMP], p[EVENT]))

    def intern(self, data):
        tables = {1: self.cats, 2: self.names, 3: self.keys, 29: self.texts}
        for n, v in fields(data):
            iid = one(v, 1)
            if not iid or iid in tables[n]:
                raise Bad("number %s of a text is taken" % iid)
            tables[n][iid] = one(v, 2, b"").decode("utf-8")

    def track(self, data):
        d = dict(fields(data))
        t = {"name": d.get(2, b"").decode("utf-8"), "parent": d.get(5), "pid": None,
             "tid": None, "counter": 8 in d, "process": 3 in d}
        if 3 in d:
            t["pid"] = one(d[3], 1)
        if 4 in d:
            t["pid"], t["tid"] = one(d[4], 1), one(d[4], 2)
        if t["parent"] and t["parent"] not in self.tracks:
            raise Bad("track %d comes before its parent" % d[1])
        if d[1] in self.tracks:
            raise Bad("track %d comes twice" % d[1])
        self.tracks[d[1]] = t

    def event(self, ts, data):
        e = Event()
        e.ts, e.name, e.cat, e.out, e.into, e.args, e.value = ts, None, None, [], [], {}, None
        for n, v in fields(data):
            if n == 9:
                e.type = v
            elif n == 11:
                e.track = v
            elif n == 10:
                e.name = self.names[v]
            elif n == 23:
                e.name = v.decode("utf-8")
            elif n == 3:
                e.cat = self.cats[v]
            elif n == 47:
                e.out.append(struct.unpack("<Q", v)[0])
            elif n == 48:
                e.into.append(struct.unpack("<Q", v)[0])
            elif n == 44:
                e.value = struct.unpack("<d", v)[0]
            elif n == 4:
                a = dict(fields(v))
                e.args[self.keys[a[1]]] = self.texts[a[17]] if 17 in a else \
                    a.get(4, a.get(3, a.get(5)))
            else:
                raise Bad("field %d of an event" % n)
        if self.tracks[e.track]["counter"] != (e.type == COUNTER):
            raise Bad("a counter's track has another event, or the other way round")
        return e

    def slices(self):
        """[(begin event, end ts)]: sorted by time, each track's begins and ends must
        pair up, whatever the file's order."""
        stacks, found = {}, []
        for e in sorted(self.events, key=lambda e: e.ts):  # stable
            if e.type == BEGIN:
                stacks.setdefault(e.track, []).append(e)
            elif e.type == END:
                if not stacks.get(e.track):
                    raise Bad("an end without a begin")
                found.append((stacks[e.track].pop(), e.ts))
        if any(stacks.values()):
            raise Bad("a slice does not end")
        return found
