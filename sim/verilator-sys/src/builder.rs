//! From a [`Spec`] to a shared object: Verilator, then the C++ compiler, without make, perl or python.
//!
//! What makes a small block quick to build (half a second): Verilator's own sources and the precompiled header of
//! `verilated.h` are built once per set of flags and kept in the cache like a model; a small model is one
//! translation unit, a large one a few, compiled in parallel.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::cache::{self, Entry, Scratch};
use crate::error::parse_diagnostics;
use crate::toolchain::output;
use crate::{Dir, Error, Opt, Port, Spec, Toolchain, XInit};

const HOOKS: &str = include_str!("../shim/weir_hooks.h");
const SHIM: &str = include_str!("../shim/weir_shim.h");
const RUNTIME: &str = include_str!("../shim/weir_runtime.cpp");
const MODEL: &str = include_str!("../shim/weir_model.inc");

/// Generated C++ is grouped into translation units of about this many bytes.
const UNIT: u64 = 400_000;

/// Verilator 5.048 to 5.050 turn `(a << b) << c` into `a << (b + c)` with a sum that wraps at the amounts' width, and silently
/// compute a wrong result (its issue 7955). Other versions accept the options.
const WORKAROUNDS: [&str; 2] = [
    "-fno-dfg-peephole-replace-shiftl-shiftl",
    "-fno-dfg-peephole-replace-shiftr-shiftr",
];

/// The shared object's name in its entry.
pub(crate) const OBJECT: &str = "model.so";
const PORTS: &str = "ports.txt";
const MEMORIES: &str = "memories.txt";
/// Tells Verilator what is watched.
const WATCH: &str = "weir_watch.vlt";

/// A built model.
pub(crate) struct Built {
    pub entry: Entry,
    pub key: String,
    pub ports: Vec<Port>,
    pub memories: Vec<Memory>,
}

/// A watched memory.
pub(crate) struct Memory {
    pub name: String,
    pub width: u32,
    pub words: u32,
}

/// Builds `spec`, or finds it built.
pub(crate) fn build(tools: &Toolchain, spec: &Spec) -> Result<Built, Error> {
    spec.check()?;
    let key = key(tools, spec);
    let entry = cache::entry(&tools.cache, tools.cache_limit, &key, |dir| {
        build_model(tools, spec, dir)
    })?;
    let path = entry.dir.join(PORTS);
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let ports = text.lines().filter_map(read_port).collect::<Vec<_>>();
    check_ports(spec, &ports)?;
    let path = entry.dir.join(MEMORIES);
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let memories = text.lines().filter_map(read_memory).collect();
    Ok(Built {
        entry,
        key,
        ports,
        memories,
    })
}

/// Verilator's lint of all rules on `files`: the smallest warning is an error.
///
/// # Errors
/// [`Error::Verilog`] with each message; [`Error::Spec`] for file names that cannot be.
pub(crate) fn lint(tools: &Toolchain, spec: &Spec) -> Result<(), Error> {
    spec.check()?;
    let scratch = Scratch::new(&tools.cache)?;
    write_sources(spec, &scratch.0)?;
    let mut command = tools.verilator();
    command.current_dir(&scratch.0).args([
        "--lint-only",
        "-Wall",
        "--no-timing",
        "--top-module",
        &spec.top,
    ]);
    run_verilator(spec, command)
}

fn key(tools: &Toolchain, spec: &Spec) -> String {
    hash(&[
        tools.key().join("\n"),
        format!("{spec:?}"),
        WORKAROUNDS.concat(),
        HOOKS.into(),
        SHIM.into(),
        RUNTIME.into(),
        MODEL.into(),
    ])
}

fn hash(parts: &[String]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher
        .finalize()
        .iter()
        .take(16)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn write(path: PathBuf, text: &str) -> Result<(), Error> {
    fs::write(&path, text).map_err(Error::io("write", path))
}

fn write_sources(spec: &Spec, dir: &Path) -> Result<(), Error> {
    spec.files
        .iter()
        .try_for_each(|(name, text)| write(dir.join(name), text))
}

/// Adds the sources to a Verilator command that runs in their folder; any message of its is an error.
fn run_verilator(spec: &Spec, mut command: Command) -> Result<(), Error> {
    if spec.asserts {
        command.arg("-DWEIR_ASSERT");
    }
    command
        .args(spec.defines.iter().map(|d| format!("-D{d}")))
        .args(spec.sources());
    let program = PathBuf::from(command.get_program());
    let done = output(&mut command).map_err(Error::io("run", program))?;
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() && !text.contains("%Warning") {
        return Ok(());
    }
    let diagnostics = parse_diagnostics(&text);
    let text = if text.is_empty() {
        format!("exit status {}", done.status)
    } else {
        text
    };
    Err(Error::Verilog {
        top: spec.top.clone(),
        diagnostics,
        text,
    })
}

/// Builds the model of `spec` in the empty folder `dir`, leaving the shared object and the port list.
fn build_model(tools: &Toolchain, spec: &Spec, dir: &Path) -> Result<(), Error> {
    let work = dir.join("work");
    let generated = work.join("cpp");
    fs::create_dir_all(&generated).map_err(Error::io("create", &generated))?;
    write_sources(spec, &work)?;
    let x = match spec.x {
        XInit::Unique => "unique",
        XInit::Fast => "fast",
    };
    let mut command = tools.verilator();
    command.current_dir(&work).args([
        "--cc",
        "--prefix",
        "Vdut",
        "--Mdir",
        "cpp",
        "--threads",
        "1",
        "--no-timing",
    ]);
    command.args([
        "-Wno-fatal",
        "-Wno-lint",
        "-Wno-style",
        "--timescale",
        "1ns/1ns",
        "-O3",
    ]);
    command.args(WORKAROUNDS);
    command.args(["--x-assign", x, "--x-initial", x, "--top-module", &spec.top]);
    command.arg(if spec.asserts {
        "--assert"
    } else {
        "--no-assert"
    });
    if spec.trace {
        command.args(["--trace-fst", "--trace-structs"]);
    }
    if !spec.watched.is_empty() {
        let line = |memory| format!("public_flat_rd -module \"*\" -var \"{memory}\"\n");
        let lines: String = spec.watched.iter().map(line).collect();
        write(work.join(WATCH), &format!("`verilator_config\n{lines}"))?;
        command.arg(WATCH);
    }
    match run_verilator(spec, command) {
        // Warnings (of -Wno-lint's exceptions) do not stop a build: lint() is for those.
        Err(Error::Verilog { text, .. })
            if !text.contains("%Error") && generated.join("Vdut.h").exists() => {}
        other => other?,
    }
    let header = generated.join("Vdut.h");
    let header = fs::read_to_string(&header).map_err(Error::io("read", &header))?;
    let found = parse_header(spec, &header)?;
    let list: String = found.iter().map(|(port, _)| write_port(port)).collect();
    let ports: Vec<Port> = found.iter().map(|(port, _)| port.clone()).collect();
    check_ports(spec, &ports)?;
    write(dir.join(PORTS), &list)?;
    let root = generated.join("Vdut___024root.h");
    let root = fs::read_to_string(&root).map_err(Error::io("read", &root))?;
    let memories = spec
        .watched
        .iter()
        .map(|memory| find_memory(spec, &root, memory))
        .collect::<Result<Vec<_>, Error>>()?;
    let list: String = memories.iter().map(|(m, _)| write_memory(m)).collect();
    write(dir.join(MEMORIES), &list)?;
    write(work.join("model.cpp"), &shim(spec, &found, &memories))?;

    let runtime = runtime(tools, spec)?;
    let opt = match spec.opt {
        Opt::Build => "-O1",
        Opt::Run => "-O3",
    };
    let mut jobs = Vec::new();
    let mut objects = Vec::new();
    for (at, (slow, sources)) in units(&generated)?.into_iter().enumerate() {
        let name = format!("unit{at}");
        let mut text: String = sources
            .iter()
            .map(|s| format!("#include \"cpp/{s}\"\n"))
            .collect();
        if at == 0 {
            text.push_str("#include \"model.cpp\"\n");
        }
        write(work.join(format!("{name}.cpp")), &text)?;
        let mut job = compile(tools, spec, if slow { "-O0" } else { opt });
        job.current_dir(&work)
            .args(["-I.", "-Icpp", "-include"])
            .arg(runtime.dir.join("weir_pch.h"));
        job.args(["-c", &format!("{name}.cpp"), "-o", &format!("{name}.o")]);
        jobs.push(job);
        objects.push(format!("{name}.o"));
    }
    run_all(&spec.top, jobs)?;
    let mut link = tools.compiler();
    link.current_dir(&work)
        .args(["-shared", "-Wl,-z,defs", "-Wl,-O1", "-o", "../model.so"])
        .args(&objects);
    link.args(
        runtime_sources(spec)
            .iter()
            .map(|(name, _)| runtime.dir.join(format!("{name}.o"))),
    );
    link.args(["-lpthread", "-latomic"]);
    if spec.trace {
        link.args(["-lz"]);
        if tools.include().join("fstcpp").exists() {
            link.arg("-llz4");
        }
    }
    run_all(&spec.top, vec![link])?;
    fs::remove_dir_all(&work).map_err(Error::io("remove", &work))
}

/// Groups the generated C++ files into translation units: (compile without optimisation, file names). The first holds
/// the code of every cycle and takes the shim.
fn units(generated: &Path) -> Result<Vec<(bool, Vec<String>)>, Error> {
    let mut files = Vec::new();
    for item in fs::read_dir(generated)
        .map_err(Error::io("read", generated))?
        .flatten()
    {
        let name = item.file_name().to_string_lossy().into_owned();
        if name.ends_with(".cpp") {
            files.push((
                name.contains("Slow"),
                name,
                item.metadata().map_or(0, |m| m.len()),
            ));
        }
    }
    files.sort();
    let total: u64 = files.iter().map(|f| f.2).sum();
    let mut units: Vec<(bool, Vec<String>)> = Vec::new();
    let mut room = 0;
    for (slow, name, bytes) in files {
        match units.last_mut() {
            // A small model is one unit: reading the headers again would cost more than the optimiser does.
            Some(last) if total < UNIT || (last.0 == slow && bytes <= room) => last.1.push(name),
            _ => {
                units.push((slow, vec![name]));
                room = UNIT;
            }
        }
        room = room.saturating_sub(bytes);
    }
    Ok(units)
}

/// A C++ compilation with the flags that all parts of a model share.
fn compile(tools: &Toolchain, spec: &Spec, opt: &str) -> Command {
    let trace = u8::from(spec.trace);
    let mut command = tools.compiler();
    // No unique symbols: they would be one for all models in the process, and keep them loaded.
    command.args([
        "-std=gnu++17",
        "-fPIC",
        "-w",
        "-fvisibility=hidden",
        "-fno-gnu-unique",
        "-fcf-protection=none",
    ]);
    command.args([
        "-DVERILATOR=1",
        "-DVL_TIME_CONTEXT",
        "-DVM_SC=0",
        "-DVM_COVERAGE=0",
        "-DVM_TRACE_VCD=0",
    ]);
    command.args([
        opt,
        &format!("-DVM_TRACE={trace}"),
        &format!("-DVM_TRACE_FST={trace}"),
        "-DVM_TRACE_SAIF=0",
    ]);
    command.arg(format!("-DWEIR_RNG={}", u8::from(tools.own_random)));
    command
        .arg("-I")
        .arg(tools.include())
        .arg("-I")
        .arg(tools.include().join("vltstd"));
    command
}

/// Verilator's own sources that a model links, and ours: (object's name, source).
fn runtime_sources(spec: &Spec) -> Vec<(&'static str, Option<&'static str>)> {
    let mut sources = vec![
        ("verilated", Some("verilated.cpp")),
        ("verilated_threads", Some("verilated_threads.cpp")),
        ("weir_runtime", None),
    ];
    if spec.trace {
        sources.insert(0, ("verilated_fst_c", Some("verilated_fst_c.cpp")));
    }
    sources
}

/// The parts that models with the same flags share: runtime objects and the precompiled header.
fn runtime(tools: &Toolchain, spec: &Spec) -> Result<Entry, Error> {
    let opt = match spec.opt {
        Opt::Build => "-O1",
        Opt::Run => "-O3",
    };
    let flags = format!("{:?}", compile(tools, spec, opt));
    let key = hash(&[
        tools.key().join("\n"),
        flags,
        HOOKS.into(),
        SHIM.into(),
        RUNTIME.into(),
    ]);
    cache::entry(
        &tools.cache,
        tools.cache_limit,
        &format!("runtime-{key}"),
        |dir| {
            write(dir.join("weir_hooks.h"), HOOKS)?;
            write(dir.join("weir_shim.h"), SHIM)?;
            write(dir.join("weir_runtime.cpp"), RUNTIME)?;
            write(dir.join("weir_pch.h"), "#include \"weir_shim.h\"\n")?;
            let mut jobs = Vec::new();
            for (name, source) in runtime_sources(spec) {
                let mut job = compile(tools, spec, "-O2");
                job.current_dir(dir)
                    .args(["-I.", "-include", "weir_hooks.h", "-c"]);
                match source {
                    Some(source) => job.arg(tools.include().join(source)),
                    None => job.arg("weir_runtime.cpp"),
                };
                job.args(["-o", &format!("{name}.o")]);
                jobs.push(job);
            }
            let mut pch = compile(tools, spec, opt);
            pch.current_dir(dir).args([
                "-I.",
                "-x",
                "c++-header",
                "weir_pch.h",
                "-o",
                "weir_pch.h.gch",
            ]);
            jobs.push(pch);
            run_all("Verilator's runtime", jobs)
        },
    )
}

/// Runs compilations, at most one a core at a time in this whole process.
fn run_all(top: &str, jobs: Vec<Command>) -> Result<(), Error> {
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for mut job in jobs {
            let failed = &failed;
            scope.spawn(move || {
                let _core = Core::take();
                let text = match output(&mut job) {
                    Ok(done) if done.status.success() => return,
                    Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
                    Err(error) => error.to_string(),
                };
                let error = Error::Compile {
                    top: top.into(),
                    command: format!("{job:?}"),
                    text,
                };
                failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(error);
            });
        }
    });
    failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .map_or(Ok(()), Err)
}

/// A permit to run one compiler.
struct Core;

static FREE: Mutex<Option<usize>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

impl Core {
    fn take() -> Core {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match free.get_or_insert(cores) {
                0 => free = FREED.wait(free).unwrap_or_else(PoisonError::into_inner),
                n => {
                    *n -= 1;
                    return Core;
                }
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(n) = FREE.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *n += 1;
        }
        FREED.notify_one();
    }
}

/// The generated head of a model's shim.
fn shim(spec: &Spec, ports: &[(Port, String)], memories: &[(Memory, String)]) -> String {
    let mut text = String::from("#include \"Vdut.h\"\n#include \"Vdut___024root.h\"\n");
    if let Some((_, member)) = ports
        .iter()
        .find(|(p, _)| p.name == spec.clock && p.dir == Dir::Input)
    {
        let _ = writeln!(text, "#define WEIR_CLOCK {member}");
    }
    text.push_str("#define WEIR_PORTS(P)");
    for (port, member) in ports {
        let _ = write!(
            text,
            " \\\n    P(\"{}\", {member}, {})",
            port.name,
            u8::from(port.dir == Dir::Input)
        );
    }
    for (memory, member) in memories {
        let _ = write!(text, " \\\n    P(\"{}\", {member}, 0)", memory.name);
    }
    text.push('\n');
    text.push_str(MODEL);
    text
}

/// Reads the ports out of Vdut.h: lines as `VL_IN8(&clk,0,0);` and `VL_OUTW(&data,255,0,8);`. Gives each with its C++
/// name.
fn parse_header(spec: &Spec, header: &str) -> Result<Vec<(Port, String)>, Error> {
    let mut ports = Vec::new();
    for line in header.lines().map(str::trim) {
        let Some(rest) = line.strip_prefix("VL_") else {
            continue;
        };
        let Some((kind, args)) = rest.strip_suffix(");").and_then(|r| r.split_once('(')) else {
            continue;
        };
        let dir = match kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'W') {
            "IN" => Dir::Input,
            "OUT" => Dir::Output,
            "INOUT" => {
                return Err(spec.error(format!(
                    "inout port in `{line}`: only inputs and outputs can be driven"
                )));
            }
            _ => continue,
        };
        let mut args = args.split(',');
        let member = args
            .next()
            .unwrap_or_default()
            .trim_start_matches('&')
            .to_string();
        let bit = |text: Option<&str>| text.and_then(|t| t.trim().parse::<i64>().ok());
        let (Some(msb), Some(lsb)) = (bit(args.next()), bit(args.next())) else {
            return Err(spec.error(format!(
                "port `{line}` of a type that is not supported: use packed vectors"
            )));
        };
        if !member
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err(spec.error(format!("port `{line}` is an array: use packed vectors")));
        }
        let width = u32::try_from((msb - lsb).abs() + 1).unwrap_or(u32::MAX);
        ports.push((
            Port {
                name: decode(&member),
                width,
                dir,
            },
            member,
        ));
    }
    Ok(ports)
}

/// Finds a watched memory in the root class: `VlUnpacked<QData/*43:0*/, 32> top__DOT__u_block__DOT__memory;`. Gives it with its
/// C++ name.
fn find_memory(spec: &Spec, root: &str, name: &str) -> Result<(Memory, String), Error> {
    let end = format!("__DOT__{name}");
    let parse = |line: &str| {
        let rest = line.trim().strip_prefix("VlUnpacked<")?.strip_suffix(';')?;
        let (kind, member) = rest.split_once("> ")?;
        let (bits, words) = kind.split_once("/*")?.1.split_once("*/, ")?;
        let (msb, lsb) = bits.split_once(':')?;
        let width = msb.parse::<u32>().ok()? + 1;
        let found = member.ends_with(&end) && lsb == "0" && width <= 64;
        let memory = Memory {
            name: name.into(),
            width,
            words: words.parse().ok()?,
        };
        found.then(|| (memory, member.to_string()))
    };
    let mut found: Vec<_> = root.lines().filter_map(parse).collect();
    match (found.pop(), found.is_empty()) {
        (Some(memory), true) => Ok(memory),
        (other, _) => Err(spec.error(format!(
            "memory `{name}` is there {} times with words of at most 64 bits; it must be once",
            found.len() + usize::from(other.is_some())
        ))),
    }
}

/// Verilator's C++ name of a Verilog name: `a__b` is `a___05Fb`, a C++ keyword is `__SYM__new`.
fn decode(member: &str) -> String {
    let mut rest = member.strip_prefix("__SYM__").unwrap_or(member);
    let mut name = String::new();
    while let Some((before, after)) = rest.split_once("__0") {
        name.push_str(before);
        let code = after
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match code {
            Some(code) => {
                name.push(code as char);
                &after[2..]
            }
            None => {
                name.push_str("__0");
                after
            }
        };
    }
    name + rest
}

fn write_port(port: &Port) -> String {
    let dir = match port.dir {
        Dir::Input => "in",
        Dir::Output => "out",
    };
    format!("{dir} {} {}\n", port.width, port.name)
}

fn write_memory(memory: &Memory) -> String {
    format!("{} {} {}\n", memory.width, memory.words, memory.name)
}

fn read_memory(line: &str) -> Option<Memory> {
    let mut words = line.splitn(3, ' ');
    Some(Memory {
        width: words.next()?.parse().ok()?,
        words: words.next()?.parse().ok()?,
        name: words.next()?.into(),
    })
}

fn read_port(line: &str) -> Option<Port> {
    let mut words = line.splitn(3, ' ');
    let dir = if words.next()? == "in" {
        Dir::Input
    } else {
        Dir::Output
    };
    Some(Port {
        dir,
        width: words.next()?.parse().ok()?,
        name: words.next()?.into(),
    })
}

/// Compares the Verilog's ports with the spec's, if it says any.
fn check_ports(spec: &Spec, found: &[Port]) -> Result<(), Error> {
    if spec.ports.is_empty() {
        return Ok(());
    }
    let mut problems = Vec::new();
    for want in &spec.ports {
        match found.iter().find(|p| p.name == want.name) {
            None => problems.push(format!(
                "`{}` is not a port of the Verilog module",
                want.name
            )),
            Some(have) if have != want => problems.push(format!(
                "`{}` is an {:?} of {} bits in the Verilog, not an {:?} of {}",
                want.name, have.dir, have.width, want.dir, want.width
            )),
            Some(_) => {}
        }
    }
    for have in found
        .iter()
        .filter(|p| spec.ports.iter().all(|w| w.name != p.name))
    {
        problems.push(format!(
            "the Verilog's `{}` is not in the port list",
            have.name
        ));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Ports {
            top: spec.top.clone(),
            problem: problems.join("; "),
        }),
    }
}
