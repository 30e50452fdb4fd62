//! `weir export`: LUNs for programs that know nothing of NVMe.
//!
//! NBD is served by nbdkit with our plugin `libweir_nbd.so`, which cargo builds beside `weir`; this process becomes
//! nbdkit, so that signals and exit status are its own. Block devices are served here, by the crate `weir-ublk`.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use signal_hook::consts::{SIGINT, SIGTERM};
use weir_driver::backend::{Bdf, DeviceError};

use crate::Failure;
use crate::bind::in_use::Users;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    how: How,
}

#[derive(clap::Subcommand)]
enum How {
    /// Over NBD, on a Unix socket, each LUN under its name: lun0, lun1 and on. For fio, qemu, nbd-client; needs nbdkit.
    Nbd(Nbd),
    /// As Linux block devices /dev/ublkbN, a LUN each, with a hardware queue a CPU; needs root and Linux's ublk driver
    /// (modprobe ublk_drv).
    ///
    /// SIGINT or SIGTERM removes the devices: not while one is mounted, swap space, held or open, which is said. A flush
    /// goes to the controller, and Linux makes a write and a flush of a FUA write. When this process is killed, the devices
    /// wait for the next export of the same controller, which takes them back.
    Ublk(Ublk),
}

#[derive(clap::Args)]
struct Ublk {
    /// The controller: a PCI function bound to vfio-pci (0000:01:00.0), or vfio-user:PATH, the socket of `weir serve`.
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// A LUN to export; may be repeated. Without it, all.
    #[arg(long, value_name = "N")]
    lun: Vec<u32>,
    /// Hardware queues of each device, each over a queue of the controller. Without it, one a CPU, or as many as the
    /// controller has.
    #[arg(long, value_name = "N")]
    queues: Option<u16>,
    /// Requests of each device's hardware queue that are with the controller at once, 1 to 4096; each has a buffer of the
    /// controller's largest transfer. Without it, as many as 128 MiB hold, from 4 to 128.
    #[arg(long, value_name = "N")]
    depth: Option<u16>,
    /// Where `weir lun --device control:PATH` may look and set meanwhile: a Unix socket, made here and removed at the end.
    /// Without it, /run/weir-BDF.control for a PCI function, and that of vfio-user with .control behind it.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Only removes the devices that an export of this controller which was killed has left: what waits in them fails.
    #[arg(long, conflicts_with_all = ["lun", "queues", "depth", "control"])]
    remove_dead: bool,
}

#[derive(clap::Args)]
struct Nbd {
    /// The controller: a PCI function bound to vfio-pci (0000:01:00.0), or vfio-user:PATH, the socket of `weir serve`.
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// Where NBD clients connect: a Unix socket, made here; nbdkit leaves it there, and the next export replaces it.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Where `weir lun --device control:PATH` may look and set meanwhile: a Unix socket, made here and removed at the end;
    /// that of --socket with .control behind it, if not given.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The LUN that the empty export name means.
    #[arg(long, value_name = "N", default_value_t = 0)]
    lun: u32,
}

/// Serves until it is interrupted.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.how {
        How::Nbd(nbd) => serve_nbd(nbd).map_err(Failure::Usage),
        How::Ublk(ublk) => serve_ublk(ublk),
    }
}

/// So often is looked whether the controller was lost, or a signal came.
const LOOK: Duration = Duration::from_millis(100);

/// The name of a device as it is always written, and the control socket of an export of it that has no other.
fn device(name: &str) -> Result<(String, PathBuf), String> {
    if let Some(path) = name.strip_prefix("vfio-user:") {
        let path = std::path::absolute(path).map_err(|error| format!("{name}: {error}"))?;
        return Ok((format!("vfio-user:{}", path.display()), beside(&path)));
    }
    let bdf: Bdf = name
        .parse()
        .map_err(|_| DeviceError::Name { name: name.into() }.to_string())?;
    Ok((bdf.to_string(), format!("/run/weir-{bdf}.control").into()))
}

fn remove_dead(name: &str) -> Result<(), Failure> {
    let removed = weir_ublk::remove_dead(name).map_err(|e| Failure::Usage(e.to_string()))?;
    for path in &removed {
        let _ = writeln!(io::stdout(), "{} is removed", path.display());
    }
    if removed.is_empty() {
        let _ = writeln!(io::stdout(), "no export of {name} has left a device");
    }
    Ok(())
}

fn serve_ublk(args: &Ublk) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let (name, control) = device(&args.device).map_err(Failure::Usage)?;
    if args.remove_dead {
        return remove_dead(&name);
    }
    let control = args.control.clone().unwrap_or(control);
    free("control", &control).map_err(Failure::Usage)?;
    let (mut stop, signal) = UnixStream::pair().map_err(|e| usage(&e))?;
    stop.set_nonblocking(true).map_err(|e| usage(&e))?;
    for number in [SIGINT, SIGTERM] {
        let signal = signal.try_clone().map_err(|e| usage(&e))?;
        signal_hook::low_level::pipe::register(number, signal).map_err(|e| usage(&e))?;
    }
    let config = weir_ublk::Config {
        luns: args.lun.clone(),
        queues: args.queues,
        depth: args.depth,
        control: Some(control.clone()),
    };
    let export = weir_ublk::start(&name, &config).map_err(|e| usage(&e))?;
    let (queues, depth) = export.queues();
    for disk in export.disks() {
        // Nobody need read it.
        let _ = writeln!(
            io::stdout(),
            "LUN {} of {name} is {}: {} MiB, {queues} hardware queue{} of {depth}{}",
            disk.lun.index,
            disk.path.display(),
            disk.lun.bytes() >> 20,
            if queues == 1 { "" } else { "s" },
            match disk.taken_back {
                true => ", taken back from an export that died",
                false => "",
            }
        );
    }
    let _ = writeln!(
        io::stdout(),
        "SIGINT or SIGTERM removes the devices\n{}",
        look_meanwhile(&control)
    );
    loop {
        if let Some(reason) = export.lost(LOOK) {
            // Its users have their errors already.
            let reason = format!("the controller of {name} is lost: {reason}");
            return Err(Failure::Wrong(match export.stop() {
                Ok(()) => reason,
                Err(error) => format!("{reason}; {error}"),
            }));
        }
        if !matches!(stop.read(&mut [0; 64]), Ok(1..)) {
            continue;
        }
        let names = export
            .disks()
            .iter()
            .filter_map(|disk| disk.path.file_name()?.to_str());
        let users = Users::of_disks(Path::new("/"), names);
        if users.is_empty() {
            break;
        }
        let _ = writeln!(io::stderr(), "weir: the export goes on: {users}");
    }
    export
        .stop()
        .map_err(|error| Failure::Wrong(error.to_string()))
}

/// Where the plugin is, when not beside `weir`.
const PLUGIN: &str = "WEIR_NBD_PLUGIN";

fn serve_nbd(nbd: &Nbd) -> Result<(), String> {
    device(&nbd.device)?;
    if let Some(path) = nbd.device.strip_prefix("vfio-user:") {
        // Else nbdkit would say it, after what is said here.
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_socket() => {}
            Ok(_) => return Err(format!("{}: {path} is no socket", nbd.device)),
            Err(error) => return Err(format!("{}: {error}", nbd.device)),
        }
    }
    let plugin = plugin()?;
    free("socket", &nbd.socket)?;
    let control = nbd.control.clone().unwrap_or_else(|| beside(&nbd.socket));
    free("control", &control)?;
    if control == nbd.socket {
        return Err("--socket and --control: must be two different paths".to_owned());
    }
    // Nobody need read it.
    let _ = writeln!(
        io::stdout(),
        "exporting {} over NBD: nbd+unix:///lun0?socket={} and further LUNs likewise; SIGINT or SIGTERM ends it\n\
         {}",
        nbd.device,
        nbd.socket.display(),
        look_meanwhile(&control)
    );
    let mut control_option = OsString::from("control=");
    control_option.push(&control);
    // Returns only when nbdkit cannot be started.
    let error = Command::new("nbdkit")
        .args(["--foreground", "--unix"])
        .arg(&nbd.socket)
        .arg("--filter=blocksize-policy")
        .arg(&plugin)
        .arg(format!("device={}", nbd.device))
        .arg(format!("lun={}", nbd.lun))
        .arg(control_option)
        .args(["blocksize-minimum=512", "blocksize-preferred=4096"])
        .args(["blocksize-maximum=32M", "blocksize-error-policy=error"])
        .exec();
    Err(match error.kind() {
        ErrorKind::NotFound => {
            "nbdkit is not there: install it (apt-get install nbdkit), version 1.32 or later"
                .to_owned()
        }
        _ => format!("cannot start nbdkit: {error}"),
    })
}

/// The plugin's file.
fn plugin() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(PLUGIN) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("{PLUGIN}: there is no file {}", path.display())),
        };
    }
    let weir = env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let beside = weir.with_file_name("libweir_nbd.so");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(format!(
            "{} is not there: build it with `cargo build --release -p weir-nbd`, or set {PLUGIN} to where it is",
            beside.display()
        )),
    }
}

/// The control socket beside another.
fn beside(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".control");
    path.into()
}

fn look_meanwhile(control: &Path) -> String {
    let control = control.display();
    format!(
        "its LUNs' depths, weights and statistics meanwhile: weir lun list --device control:{control}"
    )
}

/// Bytes of `sun_path`, unix(7), less the zero at its end.
const MAX_PATH: usize = 107;

/// Sees that nobody serves at `path`, which is that of --`option`; removes what a killed server left there.
fn free(option: &str, path: &Path) -> Result<(), String> {
    let len = path.as_os_str().len();
    if len > MAX_PATH {
        return Err(format!(
            "{}: a socket's path has at most {MAX_PATH} bytes, this has {len}; choose another --{option}",
            path.display()
        ));
    }
    let Ok(found) = fs::symlink_metadata(path) else {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        return match folder {
            Some(folder) if !folder.is_dir() => Err(format!(
                "{}: there is no folder {}; choose another --{option}",
                path.display(),
                folder.display()
            )),
            _ => Ok(()),
        };
    };
    if !found.file_type().is_socket() {
        return Err(format!(
            "{}: there is a file that is no socket; choose another --{option}",
            path.display()
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| format!("{}: cannot be removed: {error}", path.display())),
        _ => Err(format!(
            "{}: an export is served there; end it, or choose another --{option}",
            path.display()
        )),
    }
}
