"""CUDA C++ to C++ (simt/nvcc/launch.h): kernels, launches, shared memory, variables of devices."""
import re

import ptx
from source import Source

FUNCTIONS = {"__global__", "__device__", "__host__"}
VARIABLES = {"__device__", "__constant__", "__managed__", "__shared__"}
ANNOTATIONS = FUNCTIONS | VARIABLES
GROUPS = {"__attribute__", "__declspec", "alignas", "decltype", "noexcept", "explicit", "requires", "__launch_bounds__",
          "__maxnreg__", "__block_size__", "__cluster_dims__"}
DROPPED = {"__launch_bounds__", "__maxnreg__", "__block_size__"}
TYPES = {"void", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "auto", "wchar_t",
         "char8_t", "char16_t", "char32_t", "__int128"}
QUALIFIERS = {"const", "volatile", "typename", "struct", "class", "union", "enum", "__restrict__", "__restrict",
              "__grid_constant__"}
CLOSERS = ("(", "[", "{")
UNSUPPORTED = [
    (re.compile(r"tex(1D|2D|3D|Cubemap)\w*|surf(1D|2D|3D|Cubemap)\w*"), "textures and surfaces"),
    (re.compile(r"__activemask"), "__activemask, which has no defined value: name the lanes"),
    (re.compile(r"cudaLaunchDevice\w*|cudaGetParameterBuffer\w*"), "launches by kernels"),
    (re.compile(r"__cluster\w+|__cvta_\w+|__isShared|__isGlobal|__pipeline_\w+|__nv_\w*_async\w*"),
     "clusters, address spaces and asynchronous copies"),
    (re.compile(r"__[fd](add|sub|mul|div|rcp|sqrt|maf|ma)_r[dzu]"), "this rounding mode of arithmetic")]
# Headers of the toolkit that are made of what simulated GPUs do not have.
HEADERS = [(re.compile(r".*/cooperative_groups(\.h|/.*)"), "cooperative groups"),
           (re.compile(r".*/mma\.h"), "tensor cores' functions (mma.h)"),
           (re.compile(r".*/cuda_pipeline\w*\.h|.*/cuda/(pipeline|barrier)"), "asynchronous copies of kernels"),
           (re.compile(r".*/curand_\w*kernel\w*\.h"), "cuRAND's functions for kernels"),
           (re.compile(r".*/(thrust|cub)/.*"), "Thrust and CUB")]
NO = "simulated GPUs do not have "
SIMT = "::tutti::simt::nvcc::"


class Function:
    """A function with CUDA's words: indices of its first token, its name and its body's braces (None: declared)."""

    def __init__(self, kinds, start, name, body):
        self.kinds, self.start, self.name, self.body = kinds, start, name, body

    @property
    def on_device(self):
        return bool(self.kinds & {"__device__", "__global__"})


class Translation:
    def __init__(self, text, separate=False):
        self.source = Source(text)
        self.tokens = self.source.tokens
        self.separate = separate  # -rdc=true: variables and functions of devices have external linkage.
        self.errors, self.functions, self.edits = [], [], []
        self.bounds, self.externs, self.seen = {}, set(), set()
        for what, at in unsupported_headers(self.source):
            self._fail(what, at)
        if self.errors:
            return
        self._declarations()
        self._launches()
        for function in self.functions:
            if function.on_device and function.body:
                self._check_body(function)

    # Edits.
    def _fail(self, what, at):
        if isinstance(at, int):
            at = self.source.where(self.tokens[at].begin)
        self.errors.append((*at, NO + what))

    def _replace(self, first, last, text):
        """Tokens from `first` to before `last` become `text`; their newlines stay."""
        begin, end = self.tokens[first].begin, self.tokens[last - 1].end
        self.edits.append((begin, end, text + "\n" * self.source.text.count("\n", begin, end)))

    def _insert(self, before, text):
        self.edits.append((self.tokens[before].begin,) * 2 + (text,))

    def _text(self, first, last):
        """Tokens from `first` to before `last`, on one line, without CUDA's words."""
        return " ".join(token.text for token in self.tokens[first:last]
                        if token.text not in ANNOTATIONS and token.text != "__grid_constant__")

    def render(self, begin=0, end=None):
        """The translation of a part of the text."""
        end = len(self.source.text) if end is None else end
        parts, at = [], begin
        for first, last, text in sorted(self.edits, key=lambda edit: edit[:2]):
            if first < begin or last > end or first < at:
                continue
            parts += [self.source.text[at:first], text]
            at = last
        return "".join(parts) + self.source.text[at:end]

    # Declarations.
    def _declarations(self):
        scopes, done = [], 0
        for i, token in enumerate(self.tokens):
            if token.text == "{" and i in self.source.scopes:
                scopes.append(self.source.scopes[i])
            elif token.text == "}" and scopes:
                scopes.pop()
            elif token.text == "__grid_constant__":
                self._replace(i, i + 1, "")
            elif token.text in ANNOTATIONS and i >= done:
                done = self._declaration(i, scopes)

    def _declaration(self, i, scopes):
        tokens = self.tokens
        if i > 0 and tokens[i - 1].text == "]" and tokens[i - 2].text != "]":
            return self._lambda(i)
        start = self.source.start_of(i)
        kinds, j, bounds, variable, name = set(), start, None, False, None
        while j < len(tokens):
            text = tokens[j].text
            if text in ANNOTATIONS:
                kinds.add(text)
                if text != "__shared__":
                    self._replace(j, j + 1, "")
            elif text in GROUPS and tokens[j + 1].text == "(":
                close = self.source.match[j + 1]
                bounds = self._group(j, close) or bounds
                j = close
            elif text == "operator":
                name = j
                j += 3 if tokens[j + 1].text == "(" else 1
                while tokens[j].text != "(":
                    j += 1
                break
            elif text == "<" and (tokens[j - 1].kind == "word"):
                j = max(self.source.after_angles(j), j + 1) - 1
            elif text == "(":
                name, variable = j - 1, tokens[j + 1].text == "*"
                break
            elif text in ("=", ";", "[", "{", ","):
                variable = True
                break
            j += 1
        if j >= len(tokens):
            return i + 1
        if "__shared__" in kinds:
            return self._shared(start, j, scopes)
        if variable:
            return self._variable(start, j, kinds, scopes)
        return self._function(start, name, j, kinds, bounds, scopes)

    def _move_alignment(self, start, j):
        """`__shared__ alignas(16) float x` to where C++ takes it: in front."""
        for i in range(start + 1, j):
            if self.tokens[i].text == "alignas" and self.tokens[i + 1].text == "(":
                close = self.source.match[i + 1]
                self._insert(start, self._text(i, close + 1) + " ")
                self._replace(i, close + 1, "")

    def _group(self, j, close):
        """Attributes: those of CUDA are taken away. The number of threads, if it is that."""
        word = self.tokens[j].text
        if word == "__cluster_dims__":
            self._fail("clusters of blocks", j)
        if word not in DROPPED:
            return None
        self._replace(j, close + 1, "")
        if word != "__launch_bounds__":
            return None
        return self._text(*self._split(j + 1, close)[0])

    def _split(self, opening, close):
        """The parts between commas of a bracket, as pairs of indices."""
        parts, begin, j = [], opening + 1, opening + 1
        while j < close:
            text = self.tokens[j].text
            if text in ("(", "[", "{"):
                j = self.source.match.get(j, j)
            elif text == "<" and self.tokens[j - 1].kind == "word":
                j = max(self.source.after_angles(j), j + 1) - 1
            elif text == ",":
                parts.append((begin, j))
                begin = j + 1
            j += 1
        return parts + [(begin, close)] if close > opening + 1 else []

    def _lambda(self, i):
        kinds, j = set(), i
        while self.tokens[j].text in ANNOTATIONS:
            kinds.add(self.tokens[j].text)
            self._replace(j, j + 1, "")
            j += 1
        start = j
        while self.tokens[j].text not in ("{", ";"):
            j = self.source.match.get(j, j) + 1
        if self.tokens[j].text == "{":
            self.functions.append(Function(kinds, start, start, (j, self.source.match[j])))
        return start

    def _function(self, start, name, opening, kinds, bounds, scopes):
        tokens, close = self.tokens, self.source.match[opening]
        j = close + 1
        while j < len(tokens) and tokens[j].text not in ("{", ";", "="):
            if tokens[j].text == ":":  # A constructor's members.
                while not (tokens[j].text == "{" and tokens[j - 1].text in (")", "}")):
                    j = self.source.match.get(j, j) + 1 if tokens[j].text in ("(", "{") else j + 1
                break
            j = self.source.match.get(j, j) + 1 if tokens[j].text in ("(", "[") else j + 1
        if tokens[opening + 1].kind in ("number", "string"):
            self._fail("a device's variable that is set up in parentheses: use = or {}", name)
        body = (j, self.source.match[j]) if tokens[j].text == "{" else None
        self.functions.append(Function(kinds, start, name, body))
        words = {token.text for token in tokens[start:opening]}
        if "__global__" in kinds:
            self._kernel(start, name, opening, body, bounds)
        elif not self.separate and "__host__" not in kinds and all(scope == "namespace" for scope in scopes) and \
                not words & {"template", "static", "inline", "__inline__", "__forceinline__", "constexpr", "extern",
                             "friend"} and tokens[name - 1].text != "::" and "operator" not in words:
            self._insert(start, "[[maybe_unused]] static ")
        return j

    # Kernels.
    def _kernel(self, start, name, opening, body, bounds):
        if self.tokens[name].text == ">":  # An explicit specialization.
            first = name
            while self.source.after_angles(first) != name + 1 or self.tokens[first].text != "<":
                first -= 1
            name, arguments = first - 1, self._text(first, name + 1)
        else:
            arguments = self._template_arguments(start, name)
        word = self.tokens[name].text
        if body is None:
            if bounds:
                self.bounds[word] = bounds
            return
        bounds = bounds or self.bounds.get(word, "1024")
        parameters = self._split(opening, self.source.match[opening])
        if [self._text(*part) for part in parameters] == ["void"]:
            parameters = []
        names = [self._parameter(first, last, number) for number, (first, last) in enumerate(parameters)]
        types = ", ".join(self._text(first, self._default(first, last)) for first, last in parameters)
        self.edits.append((self.tokens[body[0]].end,) * 2 + (
            f" if (::tutti::simt::current == nullptr) return {SIMT}launch<static_cast<void (*)({types})>"
            f"(&{word}{arguments}), ({bounds})>({', '.join(names)});",))

    def _template_arguments(self, start, name):
        """`<T, n, Rest...>` of the last template header before a name; nothing if there is none."""
        headers = [i for i in range(start, name)
                   if self.tokens[i].text == "template" and self.tokens[i + 1].text == "<"]
        if not headers:
            return ""
        first = headers[-1] + 1
        end = self.source.after_angles(first) - 1
        names = []
        for begin, last in self._split(first, end):
            last = self._default(begin, last)
            word = self.tokens[last - 1]
            if last - begin < 2 or word.kind != "word" or word.text in TYPES | QUALIFIERS:
                names.append(None)  # Without a name: found by its default, or by the kernel's parameters.
                continue
            pack = any(token.text == "..." for token in self.tokens[begin:last])
            names.append(word.text + ("..." if pack else ""))
        while names and names[-1] is None:
            names.pop()
        return "" if None in names or not names else "<" + ", ".join(names) + ">"

    def _default(self, first, last):
        """Where a parameter's default begins, or its end."""
        j = first
        while j < last:
            if self.tokens[j].text == "=":
                return j
            if self.tokens[j].text in ("(", "[", "{"):
                j = self.source.match.get(j, j)
            elif self.tokens[j].text == "<" and j > first and self.tokens[j - 1].kind == "word":
                j = max(self.source.after_angles(j), j + 1) - 1
            j += 1
        return last

    def _parameter(self, first, last, number):
        """A parameter's name, or one that it is given here."""
        last = self._default(first, last)
        tokens = self.tokens
        pack = any(token.text == "..." for token in tokens[first:last])
        for j in range(first, last - 2):  # A pointer to a function, a reference to an array.
            if tokens[j].text == "(" and tokens[j + 1].text in ("*", "&") and tokens[j + 2].kind == "word":
                return tokens[j + 2].text
        end = last
        while tokens[end - 1].text == "]":
            end = self.source.match[end - 1]
        word, before = tokens[end - 1], tokens[end - 2].text if end - 1 > first else None
        types = [token for token in tokens[first:end - 1] if token.text not in QUALIFIERS]
        named = word.kind == "word" and word.text not in TYPES | QUALIFIERS and types and before != "::"
        if named:
            return word.text + ("..." if pack else "")
        name = f"tutti_unnamed_{number}"
        self.edits.append((tokens[end - 1].end,) * 2 + (" " + name,))
        return name + ("..." if pack else "")

    # Variables.
    def _shared(self, start, j, scopes):
        tokens = self.tokens
        words = [token.text for token in tokens[start:j]]
        if "extern" not in words:
            self._move_alignment(start, j)
            for i in range(start, j):
                if tokens[i].text == "static":
                    self._replace(i, i + 1, "")
                elif tokens[i].text == "__shared__":
                    self._replace(i, i + 1, "static thread_local")
            return j
        name, end = j - 1, j
        while tokens[end].text != ";":
            end = self.source.match.get(end, end) + 1
        kind, i = [], start
        while i < name:
            if tokens[i].text in GROUPS and tokens[i + 1].text == "(":
                i = self.source.match[i + 1]
            elif tokens[i].text not in ("extern", "__shared__", "static"):
                kind.append(tokens[i].text)
            i += 1
        kind, word = " ".join(kind), tokens[name].text
        more = self._text(self.source.match[j] + 1, end) if tokens[j].text == "[" else ""
        if scopes and scopes[-1] == "block":
            target = f"{kind} (*const {word}){more}" if more else f"{kind}* const {word}"
            cast = f"{kind} (*){more}" if more else f"{kind}*"
            if tokens[j].text != "[":
                target, cast = f"{kind}& {word}", None
            value = f"static_cast<{cast}>({SIMT}dynamic_shared())" if cast else \
                f"*static_cast<{kind}*>({SIMT}dynamic_shared())"
            self._replace(start, end, f"[[maybe_unused]] {target} = {value}")
        else:
            self._replace(start, end, f"[[maybe_unused]] static const {SIMT}DynamicShared<{kind}> {word}{{}}")
        return end

    def _variable(self, start, j, kinds, scopes):
        tokens, words = self.tokens, [token.text for token in self.tokens[start:j]]
        end = j
        while tokens[end].text != ";":
            end = self.source.match.get(end, end) + 1 if tokens[end].text in CLOSERS else end + 1
        if "__managed__" in kinds or "constexpr" in words or self._is_constant(start, j, kinds):
            return end
        if "template" in words or (scopes and scopes[-1] == "class") or tokens[j - 2].text == "::":
            self._fail("variables of devices that are templates or members", start)
            return end
        self._move_alignment(start, j)
        names = [self._declarator(first, last) for first, last in self._split(j - 2, end)]
        more = []
        for i in names:
            word = tokens[i].text
            self._replace(i, i + 1, word + "_of_host")
            if "extern" in words:
                self.externs.add(word)
                more.append(f" extern thread_local decltype({word}_of_host)& {word};")
                continue
            static = "" if (self.separate or word in self.externs) and "static" not in words else "static "
            if static and "static" not in words and i == names[0]:
                self._insert(start, "static ")
            more.append(f" static const {SIMT}Variable {word}_on_devices({word}_of_host, \"{word}\");"
                        f" {static}thread_local auto& {word} = {word}_on_devices.here();")
        self.edits.append((tokens[end].end,) * 2 + ("".join(more),))
        return end

    def _declarator(self, first, last):
        j = first
        while j < last and self.tokens[j].text not in ("[", "=", "{"):
            if self.tokens[j].text == "(" and self.tokens[j + 1].text == "*":
                return j + 2
            j += 1
        return j - 1

    def _is_constant(self, start, j, kinds):
        """Whether nothing can change it: then one copy is as good as one for each device."""
        words = [token.text for token in self.tokens[start:j]]
        if "const" not in words or self.tokens[j].text not in ("=", "[", "{"):
            return False
        return "*" not in words or words[-2] == "const"

    # Launches.
    def _launches(self):
        for i, token in enumerate(self.tokens):
            if token.text != "<<<":
                continue
            inside = [function for function in self.functions if function.body and function.on_device and
                      function.body[0] < i < function.body[1]]
            if inside and "__host__" not in inside[-1].kinds:
                self._fail("launches by kernels (dynamic parallelism)", i)
                continue
            end = i + 1
            while not all(token.text == ">" for token in self.tokens[end:end + 3]):
                end = self.source.match.get(end, end) + 1 if self.tokens[end].text in CLOSERS else end + 1
            start, close = self._callee(i), self.source.match.get(end + 3)
            if close is None or self.tokens[end + 3].text != "(":
                continue
            self._insert(start, f"({SIMT}configure({self._text(i + 1, end)}), ")
            self._replace(i, end + 3, "")
            self.edits.append((self.tokens[close].end,) * 2 + (")",))

    def _callee(self, i):
        """Where the expression begins that ends before token i: `ns::kernel<T>`, `(kernel)`, `table[2]`, `a->b`."""
        j = i
        while j > 0:
            before = self.tokens[j - 1]
            if before.text == ">":
                depth, k = 0, j
                while k > 0:
                    k -= 1
                    text = self.tokens[k].text
                    if text in (")", "]", "}"):
                        k = self.source.match[k]
                    depth += {">": 1, "<": -1}.get(text, 0)
                    if depth == 0:
                        break
                j = k
            elif before.text in (")", "]"):
                j = self.source.match[j - 1]
            elif before.kind == "word" and before.text not in ("return", "else", "do"):
                j -= 1
                link = self.tokens[j - 1].text
                if link == "template":
                    j -= 1
                    link = self.tokens[j - 1].text
                if link not in ("::", ".", "->"):
                    return j
                j -= 1
                if link == "::" and not (self.tokens[j - 1].kind == "word" or self.tokens[j - 1].text == ">"):
                    return j
                continue
            else:
                return j
            if self.tokens[j - 1].kind != "word" and self.tokens[j - 1].text not in (")", "]", ">"):
                return j
        return j

    # What is in the bodies of kernels and of device functions.
    def _check_body(self, function):
        first, last = function.body
        ends = set()  # What ends a do.
        for i in range(first + 1, last):
            token = self.tokens[i]
            if token.text == "do":
                ends.add(self._after_statement(i + 1))
            if token.kind != "word" or i in self.seen:
                continue
            self.seen.add(i)
            following = self.tokens[i + 1].text
            if token.text in ("asm", "__asm__", "__asm"):
                self._assembly(i)
            elif following in ("(", "<", "::"):
                for pattern, what in UNSUPPORTED:
                    if pattern.fullmatch(token.text):
                        self._fail(what, i)
                        break
            if token.text == "while" and following == "(" and i not in ends:
                self._loop(i)

    def _assembly(self, i):
        """Inline PTX: a few instructions become C++."""
        opening = i + 1
        while self.tokens[opening].text != "(":
            opening += 1
        close, parts = self.source.match[opening], [[]]
        j = opening + 1
        while j < close:
            if self.tokens[j].text in (":", "::"):
                parts += [[]] * (len(self.tokens[j].text) - 1) + [[]]
            end = self.source.match.get(j, j) + 1
            if self.tokens[j].text not in (":", "::"):
                parts[-1] = parts[-1] + list(range(j, end))
            j = end
        template = "".join(self.tokens[j].text[1:-1] for j in parts[0] if self.tokens[j].kind == "string")
        if not template:
            return  # An empty one keeps the compiler from moving accesses.
        template = re.sub(r"\\[nt]", " ", template).replace("%%", "%")
        operands = []
        for part in parts[1:3]:
            operands += [self._text(j + 1, self.source.match[j])
                         for j in part if self.tokens[j].text == "(" and self.tokens[j - 1].kind == "string"]
        translated = ptx.translate(template, operands)
        if translated is None:
            self._fail(f"inline PTX but the simplest: {' '.join(template.split())}", i)
        else:
            self._replace(i, close + 1, translated)

    def _after_statement(self, i):
        while self.tokens[i].text not in (";", "{"):
            i = self.source.match.get(i, i) + 1 if self.tokens[i].text in CLOSERS else i + 1
        return self.source.match.get(i, i) + 1

    def _loop(self, i):
        """A loop without a body waits: other threads of the block get their turn."""
        close = self.source.match[i + 1]
        text = self.tokens[close + 1].text
        if text == ";":
            self._replace(close + 1, close + 2, " ::tutti::simt::poll_point(nullptr);")
        elif text == "{" and self.tokens[close + 2].text == "}":
            self.edits.append((self.tokens[close + 1].end,) * 2 + (" ::tutti::simt::poll_point(nullptr);",))


def unsupported_headers(source):
    """What there is not of the headers that a source includes, each once, and where it includes them."""
    found = {}
    for begin, _, file, entered in source.markers:
        for pattern, what in HEADERS:
            if entered and source.files.get(file) and what not in found and pattern.fullmatch(file):
                found[what] = source.includer(begin)
    return found.items()
