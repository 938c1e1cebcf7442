"""nvcc's options: which this command takes, with how many words, and what becomes of them."""

# Options with a value that no simulated GPU needs: the value may be the next word, or follow "=".
IGNORED_WITH_VALUE = {
    "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code", "-cudart", "--cudart",
    "-maxrregcount", "--maxrregcount", "-Xptxas", "--ptxas-options", "-Xcudafe", "-Xfatbin", "--fatbin-options",
    "-Xnvlink", "--nvlink-options", "-Xarchive", "--archive-options", "-t", "--threads", "-diag-suppress",
    "--diag-suppress", "-diag-error", "--diag-error", "-diag-warn", "--diag-warn", "-Werror", "--Werror", "-ftz", "--ftz",
    "-prec-div", "--prec-div", "-prec-sqrt", "--prec-sqrt", "-fmad", "--fmad", "-cudadevrt", "--cudadevrt", "-m",
    "--machine", "--compress-mode", "-compress-mode", "--split-compile", "-split-compile", "--dopt", "-dopt",
    "--keep-dir", "-keep-dir", "--objdir-as-tempdir", "--expand-dir", "--target-directory", "-target-dir",
    "--allow-unsupported-compiler-version"}
IGNORED = {
    "-lineinfo", "--generate-line-info", "-use_fast_math", "--use_fast_math", "-extended-lambda", "--extended-lambda",
    "--expt-extended-lambda", "-expt-extended-lambda", "-m64", "--compress-all", "--resource-usage", "-res-usage",
    "--keep", "-keep", "-save-temps", "--save-temps", "-allow-unsupported-compiler", "--allow-unsupported-compiler",
    "--source-in-ptx", "-src-in-ptx", "--restrict", "-restrict", "-Wno-deprecated-gpu-targets", "-err-no", "--err-no",
    "--display-error-number", "-dlto", "--dlto", "-noprof", "--brief-diagnostics", "-clean", "--extra-device-vectorization",
    "-Wreorder", "--Wreorder", "-Wdefault-stream-launch", "--device-debug-lineinfo", "-forward-unknown-to-host-compiler",
    "--forward-unknown-to-host-compiler", "-forward-unknown-opts", "--no-exceptions-device", "-nodlink", "--no-device-link"}
# Options that take the next word: long name to short one.
VALUES = {
    "--output-file": "-o", "--include-path": "-I", "--define-macro": "-D", "--undefine-macro": "-U",
    "--library": "-l", "--library-path": "-L", "--pre-include": "-include", "--system-include": "-isystem", "--std": "-std",
    "--optimize": "-O", "--compiler-options": "-Xcompiler", "--linker-options": "-Xlinker", "--x": "-x",
    "--compiler-bindir": "-ccbin", "--default-stream": "-default-stream", "--dependency-output": "-MF",
    "--dependency-target-name": "-MT", "--relocatable-device-code": "-rdc", "--options-file": "-optf",
    "--output-directory": "-odir"}
TAKES_WORD = {"-o", "-I", "-D", "-U", "-l", "-L", "-include", "-isystem", "-std", "-O", "-Xcompiler", "-Xlinker", "-x",
              "-ccbin", "-default-stream", "-MF", "-MT", "-MQ", "-rdc", "-optf", "-odir", "-idirafter", "-iquote"}
PHASES = {
    "-c": "-c", "--compile": "-c", "-dc": "-dc", "--device-c": "-dc", "-dw": "-c", "--device-w": "-c", "-E": "-E",
    "--preprocess": "-E", "-M": "-M", "--generate-dependencies": "-M", "-MM": "-MM",
    "--generate-nonsystem-dependencies": "-MM", "-lib": "-lib", "--lib": "-lib", "-dlink": "-dlink",
    "--device-link": "-dlink", "-cuda": "-E", "--cuda": "-E"}
MACHINE_CODE = {"-ptx", "--ptx", "-cubin", "--cubin", "-fatbin", "--fatbin", "-optix-ir", "--optix-ir", "-ltoir"}


class UsageError(Exception):
    pass


class Options:
    def __init__(self):
        self.phase, self.output, self.folder, self.language, self.compiler = "link", None, None, None, None
        self.preprocessing, self.compiling, self.linking, self.inputs = [], [], [], []
        self.dependencies, self.standard, self.architectures = [], None, []
        self.verbose = self.dry = self.separate = self.shared = self.optimizes = False


def joined(word):
    """Option and value of one word: "-Idir", "-O3", "--std=c++17", "-std=c++17", "-gencode=arch=..."."""
    name, equals, value = word.partition("=")
    if equals and (name in VALUES or name in TAKES_WORD or name in IGNORED_WITH_VALUE):
        return name, value
    for prefix in ("-isystem", "-include", "-I", "-D", "-U", "-L", "-l", "-o", "-O", "-MF", "-MT", "-x"):
        if word.startswith(prefix) and len(word) > len(prefix) and not word.startswith("-objdir") and \
                not word.startswith("-default"):
            return prefix, word[len(prefix):]
    return word, None


def parse(words):
    """Reads the command line. Raises UsageError."""
    options, words = Options(), list(words)
    while words:
        word = words.pop(0)
        if word.startswith("@"):
            words[:0] = read_words(word[1:])
        elif not word.startswith("-") or word == "-":
            options.inputs.append((word, options.language))
            options.linking.append(word)
        elif word in PHASES:
            options.phase = "-c" if PHASES[word] == "-dc" else PHASES[word]
            options.separate |= PHASES[word] == "-dc"
        elif word in MACHINE_CODE:
            raise UsageError(f"{word}: simulated GPUs have no machine code")
        elif word not in IGNORED and not flag(options, word):
            valued(options, word, words)
    return options


def flag(options, word):
    """An option of one word; False: it is none that this knows."""
    if word in ("-v", "--verbose"):
        options.verbose = True
    elif word in ("-dryrun", "--dryrun", "-#"):
        options.dry = options.verbose = True
    elif word in ("-shared", "--shared"):
        options.shared = True
        options.linking.append("-shared")
    elif word in ("-MD", "--generate-dependencies-with-compile", "-MMD", "--generate-nonsystem-dependencies-with-compile"):
        options.dependencies.append("-MMD" if "nonsystem" in word or word == "-MMD" else "-MD")
    elif word in ("-MP", "--generate-dependency-targets"):
        options.dependencies.append("-MP")
    elif word in ("-g", "--debug", "-G", "--device-debug", "-pg", "--profile", "-w", "--disable-warnings"):
        options.compiling.append({"--debug": "-g", "-G": "-g", "--device-debug": "-g", "--profile": "-pg",
                                  "--disable-warnings": "-w"}.get(word, word))
        options.optimizes |= word in ("-G", "--device-debug")
    elif word in ("-expt-relaxed-constexpr", "--expt-relaxed-constexpr"):
        options.preprocessing.append("-D__CUDACC_RELAXED_CONSTEXPR__=1")
    elif word.startswith(("-Wl,", "-pthread", "-rdynamic", "-static-lib")):
        options.linking.append(word)
    elif word.startswith(("-f", "-W", "-m")) and joined(word)[0] not in IGNORED_WITH_VALUE:
        options.compiling.append(word)
    else:
        return False
    return True


def valued(options, word, words):
    name, value = joined(word)
    name = VALUES.get(name, name)
    known = name in TAKES_WORD or name in IGNORED_WITH_VALUE
    if not known:
        raise UsageError(f"unknown option {word}; see nvcc --help")
    if value is None:
        if not words:
            raise UsageError(f"{word} needs a value")
        value = words.pop(0)
    if name in ("-I", "-D", "-U"):
        options.preprocessing += [name + one for one in (value.split(",") if name == "-I" else [value])]
    elif name in ("-include", "-isystem", "-idirafter", "-iquote"):
        options.preprocessing += [name, value]
    elif name in ("-l", "-L"):
        options.linking += [name + one for one in value.split(",")]
    elif name == "-O":
        options.compiling.append("-O" + value)
        options.optimizes = True
    elif name in ("-MF", "-MT", "-MQ"):
        options.dependencies += [name, value]
    elif name == "-Xcompiler":
        forward(options, value.split(","))
    elif name == "-Xlinker":
        options.linking += [part for one in value.split(",") for part in ("-Xlinker", one)]
    elif name == "-default-stream":
        if value == "per-thread":
            options.preprocessing.append("-DCUDA_API_PER_THREAD_DEFAULT_STREAM=1")
    elif name == "-optf":
        words[:0] = read_words(value)
    elif name == "-x":
        options.language = value
    elif name == "-rdc":
        options.separate = value == "true"
    elif name in ("-gencode", "--generate-code", "-arch", "--gpu-architecture"):
        options.architectures.append(value)
    else:
        fields = {"-o": "output", "-odir": "folder", "-std": "standard", "-ccbin": "compiler"}
        if name in fields:
            setattr(options, fields[name], value)


def forward(options, words):
    """Options for the host's compiler: for its steps that know them."""
    for word in words:
        word = word.strip('"')
        if word.startswith(("-I", "-D", "-U")):
            options.preprocessing.append(word)
        elif word.startswith("-Wl,") or word in ("-pthread", "-rdynamic"):
            options.linking.append(word)
        elif word.startswith("-O"):
            options.compiling.append(word)
            options.optimizes = True
        else:
            options.compiling.append(word)
            if word.startswith(("-fsanitize", "-fopenmp", "-fPIC", "-fpic", "-m")) or word == "-pg":
                options.linking.append(word)


def read_words(file):
    try:
        with open(file, encoding="utf-8") as lines:
            return lines.read().split()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
