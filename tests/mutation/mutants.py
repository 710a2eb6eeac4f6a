# SPDX-License-Identifier: BSD-2-Clause
"""Places in C source where one small defect can be put, found by its tokens.

Comments, strings, preprocessor lines, assertions and what only matters out of
memory are left alone: no test can notice those.
"""
import bisect
import collections
import re

# begin, end: of the text that is replaced
Mutant = collections.namedtuple("Mutant", "path line begin end new kind")

TOKEN = re.compile(r"""
    (?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:\\\n|[^\n])*|\s+)
  | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[uUlLfF]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<op>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
""", re.X | re.S | re.M)
RELATIONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
             "==": ("!=",), "!=": ("==",)}
LOGIC = {"&&": "||", "||": "&&"}
SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "++": "--", "--": "++"}
EXTREMES = {"pt_min64": "pt_max64", "pt_max64": "pt_min64", "fmin": "fmax", "fmax": "fmin"}
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "|=", "&=", "^=", "%=", "<<=", ">>=", "++", "--"}
KEYWORDS = set("if else for while do switch case default return goto break continue "
               "sizeof struct union enum static const typedef extern inline".split())
UNSEEN = re.compile(r"ENOMEM|free\(|assert|no_memory")

Token = collections.namedtuple("Token", "kind text begin end")


def tokens(text):
    return [Token(m.lastgroup, m.group(), m.start(), m.end())
            for m in TOKEN.finditer(text) if m.lastgroup != "skip"]


def closing(toks, i):
    """Index of what closes the bracket at i; None."""
    depth = 0
    for k in range(i, len(toks)):
        if toks[k].text in "([{":
            depth += 1
        elif toks[k].text in ")]}":
            depth -= 1
            if not depth:
                return k
    return None


def is_operand(t):
    return t.kind in ("number", "name") and t.text not in KEYWORDS or t.text in (")", "]")


def numbers(t):
    """What a constant may become."""
    m = re.match(r"(0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][+-]?\d+)?)([uUlLfF]*)$", t.text)
    if not m:
        return []
    digits, suffix = m.groups()
    if "." in digits or "e" in digits.lower() and not digits.lower().startswith("0x"):
        return [("constant", repr(float(digits) * f) + suffix) for f in (2, .5)
                if float(digits)]
    n = int(digits, 0)
    out = [("off by one", "%d%s" % (n + 1, suffix))]
    if n:
        out.append(("off by one", "%d%s" % (n - 1, suffix)))
    if n > 3:
        out += [("constant", "%d%s" % (v, suffix)) for v in (n * 2, n // 2)]
    return out


def statement_end(toks, i):
    """Index of the `;` of the statement that begins at i; None: it is no plain one."""
    depth = 0
    for k in range(i, len(toks)):
        x = toks[k].text
        if x in "([":
            depth += 1
        elif x in ")]":
            depth -= 1
        elif x in "{}" or depth < 0:
            return None
        elif x == ";" and not depth:
            return k
    return None


def is_deletable(toks, i, end):
    """An assignment to something that exists, or a call."""
    first = toks[i]
    if first.text in KEYWORDS or first.kind not in ("name", "op"):
        return False
    if first.kind == "op" and first.text not in ("*", "(", "++", "--"):
        return False
    if first.kind == "name" and (toks[i + 1].kind == "name" or
                                 (toks[i + 1].text == "*" and toks[i + 2].kind == "name")):
        return False  # a declaration
    if first.kind == "name" and toks[i + 1].text == "(" and closing(toks, i + 1) == end - 1:
        return True
    depth = 0
    for t in toks[i:end]:
        depth += (t.text in "([") - (t.text in ")]")
        if not depth and t.text in ASSIGNS:
            return True
    return False


def depths(toks):
    """Of braces, before each token: 0 is outside of functions."""
    out, depth = [], 0
    for t in toks:
        out.append(depth)
        depth += (t.text == "{") - (t.text == "}")
    return out


def places(toks, text):
    """(kind, begin, end, new)"""
    for i, t in enumerate(toks):
        prev = toks[i - 1] if i else None
        if t.text in RELATIONS and prev and is_operand(prev):
            for new in RELATIONS[t.text]:
                yield "relation", t.begin, t.end, new
        elif t.text in LOGIC:
            yield "logic", t.begin, t.end, LOGIC[t.text]
        elif t.text in SIGNS and (t.text not in "+-" or prev and is_operand(prev)):
            yield "sign", t.begin, t.end, SIGNS[t.text]
        elif t.text in EXTREMES:
            yield "min or max", t.begin, t.end, EXTREMES[t.text]
        elif t.kind == "number":
            for kind, new in numbers(t):
                yield kind, t.begin, t.end, new
        elif t.text == "if" and toks[i + 1].text == "(":
            end = closing(toks, i + 1)
            if end:
                inner = text[toks[i + 1].end:toks[end].begin]
                yield "negated", toks[i + 1].end, toks[end].begin, "!(%s)" % inner
        if prev and prev.text in (";", "{", "}", ")", "else", ":"):
            end = statement_end(toks, i)
            if end and is_deletable(toks, i, end):
                yield "deleted", t.begin, toks[end].begin, ""


def mutants_of(path, text):
    toks = tokens(text)
    depth, starts = depths(toks), [t.begin for t in toks]
    lines = [0] + [m.end() for m in re.finditer("\n", text)]
    for kind, begin, end, new in places(toks, text):
        if not depth[bisect.bisect_right(starts, begin) - 1]:
            continue
        line = bisect.bisect_right(lines, begin)
        last = bisect.bisect_right(lines, max(end - 1, begin))
        around = text[lines[line - 1]:lines[last] if last < len(lines) else len(text)]
        if not UNSEEN.search(around):
            yield Mutant(path, line, begin, end, new, kind)
