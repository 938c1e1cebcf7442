"""A preprocessed C++ source: its tokens, which brackets belong together, what scopes there are, where a line is from."""
import bisect
import re

# Everything up to this line is simt/nvcc/prelude.h, which needs no translation.
PRELUDE_END = "#pragma tutti_prelude_end\n"
MARKER = re.compile(r'^# (\d+) "((?:[^"\\\n]|\\.)*)"((?: \d)*)\n', re.M)
# A system's header without any of these has nothing to translate.
WORDS = re.compile(r"<<<|\b__(?:global|device|host|shared|constant|managed|launch_bounds)__\b")
TOKEN = re.compile(
    r'(?P<directive>^[ \t]*#[^\n]*)'
    r'|(?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")'
    r"|(?P<char>(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)"
    r"|(?P<word>[A-Za-z_$][\w$]*)"
    r"|(?P<sign><<<|::|->|\.\.\.|[^\s])", re.M | re.S)
CLOSING = {"(": ")", "[": "]", "{": "}"}


class Token:
    __slots__ = ("kind", "text", "begin", "end")

    def __init__(self, kind, text, begin):
        self.kind, self.text, self.begin, self.end = kind, text, begin, begin + len(text)


class Source:
    """The text behind the prelude. `tokens` has no directives; `match` maps an opening bracket's index to its closing
    one's and back; `scopes` has for each opening brace what it opens: "namespace", "class" or "block"."""

    def __init__(self, text):
        before, end, self.text = text.partition(PRELUDE_END)
        self.prelude = before + end
        self.tokens, self.markers, self.files = [], [], {}
        self._tokenize()
        self.match, self.scopes = {}, {}
        self._pair_brackets()

    def _tokenize(self):
        begin, system = 0, False
        for marker in list(MARKER.finditer(self.text)) + [None]:
            end = marker.start() if marker else len(self.text)
            if not system or WORDS.search(self.text, begin, end):
                self._tokenize_part(begin, end)
            if marker:
                begin, entered = marker.end(), " 1" in marker[3]
                self.markers.append((begin, int(marker[1]), marker[2], entered))
                # Elsewhere the flag 3 is also that of a system's macro in a user's file.
                if marker[2] not in self.files:
                    self.files[marker[2]] = (entered and " 3" in marker[3]) or marker[2].startswith("<")
                system = self.files[marker[2]]

    def _tokenize_part(self, begin, end):
        for found in TOKEN.finditer(self.text, begin, end):
            token = Token(found.lastgroup if found.lastgroup != "mark" else "string", found[0], found.start())
            if token.kind != "directive":
                self.tokens.append(token)

    def _pair_brackets(self):
        open_ones = []
        for i, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in CLOSING:
                if token.text == "{":
                    self.scopes[i] = self._scope(i)
                open_ones.append(i)
            elif token.text in ")]}":
                while open_ones and CLOSING[self.tokens[open_ones[-1]].text] != token.text:
                    open_ones.pop()
                if open_ones:
                    self.match[i] = open_ones[-1]
                    self.match[open_ones.pop()] = i

    def _scope(self, brace):
        words = [token.text for token in self.tokens[self.start_of(brace):brace]]
        if "namespace" in words or (words[:1] == ["extern"] and len(words) == 2):
            return "namespace"
        kinds = {"class", "struct", "union", "enum"} & set(words)
        if kinds and words[-1:] != [")"] and "=" not in words and not self._is_function_head(words):
            return "class"
        return "block"

    @staticmethod
    def _is_function_head(words):
        """`struct S f(int x) {`, not `struct alignas(16) S {` nor `template <int (*f)()> struct S {`."""
        while words[:1] == ["template"]:
            depth = 0
            for i, word in enumerate(words):
                depth += {"<": 1, ">": -1}.get(word, 0)
                if word == ">" and depth == 0:
                    break
            words = words[i + 1:]
        before = [a for a, b in zip(words, words[1:]) if b == "("]
        return any(re.match(r"\w", word) and word not in ("alignas", "__attribute__", "decltype", "aligned") and
                   not word.startswith("__") for word in before)

    def start_of(self, i):
        """The index of the first token of the declaration or statement that token i is in."""
        while i > 0:
            before = self.tokens[i - 1].text
            if before in (";", "{", "}") or (
                    before == ":" and i > 1 and self.tokens[i - 2].text in ("public", "private", "protected")):
                break
            i = self.match.get(i - 1, i - 1) if before in (")", "]") else i - 1
        return i

    def after_angles(self, i):
        """The index behind the template arguments that begin at i; i itself if none do."""
        depth, j = 0, i
        while j < len(self.tokens):
            text = self.tokens[j].text
            if text in ("(", "[", "{"):
                j = self.match.get(j, j)
            elif text in ("<", "<<<"):
                depth += len(text)
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return j + 1
            elif text == ";":
                return i
            j += 1
        return i

    def where(self, position):
        """File and line of a position in the text."""
        at = bisect.bisect_right(self.markers, position, key=lambda marker: marker[0]) - 1
        if at < 0:
            return "<source>", 1
        begin, line, file, _ = self.markers[at]
        return file, line + self.text.count("\n", begin, position)

    def includer(self, position):
        """File and line of the include of the file that a position is in: where a user's own file includes it."""
        at = bisect.bisect_right(self.markers, position, key=lambda marker: marker[0]) - 1
        while at > 0 and (self.files.get(self.markers[at][2], True) or self.markers[at][2] == self.where(position)[0]):
            at -= 1
        begin, line, file, _ = self.markers[at]
        return file, line + self.text.count("\n", begin, self.markers[at + 1][0]) - 1
