#!/usr/bin/env python3
"""scripts/classes.py [--list COUNT] [FILE...]: members of classes, counted.

A class with more than 20 functions or more than 15 fields is a finding, unless the comment above it
says why in a sentence with the words "more than", as in "It has more than 15 fields: ...". With --list: the
COUNT largest classes instead. Files: standard input, if none is named.
"""
import re
import sys

MOST_FUNCTIONS = 20
MOST_FIELDS = 15
SKIPPED = re.compile(r"^(using|friend|typedef|static_assert|enum|public:|private:|protected:|$)")
HEAD = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*|[A-Z_]+\s+)*([A-Za-z_][\w:]*)"
                  r"(?:\s+final)?(?:\s*:[^:;{}][^;{}]*)?\s*\{")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def without_comments(text):
    """Comments, strings and preprocessor lines as spaces; lines stay."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', blank, text)
    text = re.sub(r"'(?:\\.|[^'\\\n])'", blank, text)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*", blank, text, flags=re.M)


def end_of(text, at):
    """Behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def statements(body):
    """What a class declares, without the insides of braces."""
    i, start = 0, 0
    while i < len(body):
        if body[i] == ";":
            yield body[start:i]
            start = i + 1
        elif body[i] == "{":
            end = end_of(body, i)
            rest = re.match(r"\s*([;,=])", body[end:])
            before = body[start:i]
            # Behind a function's body there is no semicolon; behind a field's value or a type there is.
            if rest is None and not re.search(r"[,:]\s*\w+\s*$|=\s*$", before):
                yield before
                start = end
            else:
                body = body[:i] + " " * (end - i) + body[end:]
            i = end - 1
        i += 1


def outside_angles(text):
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>()]*>", " ", text)
    return text


def members(body):
    """(functions, fields)"""
    functions = fields = 0
    for one in statements(body):
        one = re.sub(r"\b(public|private|protected)\s*:", " ", one)
        one = re.sub(r"\btemplate\s*<[^{}]*?>(?=\s*(?:class|struct|static|constexpr|auto|\w))", " ", one, count=1)
        one = " ".join(one.split())
        if SKIPPED.match(one) or re.match(r"(static )?(inline )?constexpr (?!.*\()", one):
            continue
        if re.match(r"(class|struct|union)\b[^()]*$", one):
            continue  # A nested type, which counts for itself.
        if re.match(r"(static )?constexpr [^(]*=", one):
            continue
        plain = re.sub(r"\b(alignas|decltype|std::function|requires)\s*(<[^<>]*\([^<>]*>|\([^()]*\))", " ", one)
        declared = outside_angles(plain).split("=")[0]
        if "(" in declared or "operator" in declared:
            functions += "= delete" not in one
        else:
            fields += declared.count(",") + 1
    return functions, fields


def classes(path):
    """(name, line, functions, fields, comment) of each class that a file defines."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    text = without_comments(source)
    lines = source.splitlines()
    for head in HEAD.finditer(text):
        if text[:head.start()].rstrip().endswith("enum"):
            continue
        open_at = head.end() - 1
        functions, fields = members(text[open_at + 1:end_of(text, open_at) - 1])
        line = text.count("\n", 0, head.start())
        above, comment = line - 1, []
        while above >= 0 and re.match(r"\s*(//|template\b)", lines[above]):
            comment.insert(0, lines[above].strip().lstrip("/ "))
            above -= 1
        yield head.group(1), line + 1, functions, fields, " ".join(comment)


def main():
    arguments = sys.argv[1:]
    most = int(arguments[1]) if arguments[:1] == ["--list"] else 0
    paths = arguments[2 if most else 0:] or sys.stdin.read().split()
    # NCCL prescribes the classes of its own headers.
    paths = [path for path in paths
             if re.match(r"(src|include|tools|kernels|compat|trainer|perf|simt)/.*\.(h|cc|cuh)$", path)
             and not re.match(r"compat/nccl/(nccl|device_api)\.h", path)]
    found = [(path, *one) for path in paths for one in classes(path)]
    if most:
        def size(one):
            return max(one[3] / MOST_FUNCTIONS, one[4] / MOST_FIELDS)
        for path, name, line, functions, fields, _ in sorted(found, key=size, reverse=True)[:most]:
            print(f"{functions:4} functions {fields:4} fields  {name}  {path}:{line}")
        return 0
    wrong = 0
    for path, name, line, functions, fields, comment in found:
        if (functions > MOST_FUNCTIONS or fields > MOST_FIELDS) and "more than" not in comment:
            print(f"{path}:{line}: {name} has {functions} functions and {fields} fields; above {MOST_FUNCTIONS} "
                  f"or {MOST_FIELDS} the comment above it says why: \"It has more than ...\"")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
