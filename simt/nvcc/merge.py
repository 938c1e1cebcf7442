"""One source of two translations: one for the host, and one where __CUDA_ARCH__ is defined, as in nvcc's passes.

Kernels and device functions are taken from the second one. Functions for both sides get both bodies, and take the one
of the side that calls them. All else is the host's, and has to be the same.
"""
import difflib


def functions_by_place(translation):
    """Functions with bodies, by file, line, name, and how many of these there were before."""
    found, counts = {}, {}
    for function in translation.functions:
        if function.body is None or not function.on_device:
            continue
        token = translation.tokens[function.name]
        place = (*translation.source.where(token.begin), token.text)
        counts[place] = counts.get(place, 0) + 1
        found[(*place, counts[place])] = function
    return found


def words(translation, function):
    first, last = function.body
    return [token.text for token in translation.tokens[first:last]]


def body(translation, function):
    """The translation of a body, with the line that it is from."""
    first, last = (translation.tokens[i] for i in function.body)
    file, line = translation.source.where(first.begin)
    return f'\n# {line} "{file}"\n' + translation.render(first.begin, last.end)


def outside(translation):
    """The tokens that are not in bodies of functions, as texts and as their indices."""
    texts, places, i = [], [], 0
    while i < len(translation.tokens):
        texts.append(translation.tokens[i].text)
        places.append(i)
        if translation.source.scopes.get(i) == "block":
            i = translation.source.match.get(i, i)
        i += 1
    return texts, places


def merge(host, device):
    """Translates `host` with the bodies of `device`. Adds to its errors what cannot be merged."""
    on_device = functions_by_place(device)
    host.errors = [error for error in host.errors if error not in device.errors] + device.errors
    (ours, _), (theirs, places) = outside(host), outside(device)
    if ours != theirs:
        for kind, _, _, first, _ in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
            if kind in ("insert", "replace"):
                at = device.source.where(device.tokens[places[first]].begin)
                host.errors.append((*at, "simulated GPUs do not have declarations that only devices see "
                                         "(#if on __CUDA_ARCH__)"))
                break
    replaced = []
    for place, function in functions_by_place(host).items():
        other = on_device.get(place)
        if other is None or words(host, function) == words(device, other):
            continue
        begin, end = host.tokens[function.body[0]].begin, host.tokens[function.body[1]].end
        theirs = body(device, other)
        if "__host__" in function.kinds:
            constant = "constexpr" in {token.text for token in host.tokens[function.start:function.name]}
            asked = "!__builtin_is_constant_evaluated() && " if constant else ""
            theirs = (f"{{ if ({asked}::tutti::simt::current != nullptr) {theirs} "
                      f"else {body(host, function)} }}")
        file, line = host.source.where(end)
        replaced.append((begin, end, theirs + f'\n# {line} "{file}"\n'))
    host.edits = [edit for edit in host.edits
                  if not any(begin < edit[1] and edit[0] < end and (edit[0], edit[1]) != (begin, begin)
                             for begin, end, _ in replaced)] + replaced
    return host.render()
