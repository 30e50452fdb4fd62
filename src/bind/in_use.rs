//! Who uses a function or a block device: what is lost, or hangs, when its driver goes.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weir_driver::backend::{Function, openers};

/// O_EXCL of open(2): on a block device it fails when a file system, swap, md, dm or the like has claimed it.
const O_EXCL: i32 = 0o200;

/// The users found, each in words.
pub struct Users(Vec<String>);

impl Users {
    /// Those of the function's block devices, partitions and controller, as far as this user may see them.
    pub fn of(root: &Path, function: &Function) -> Users {
        let mut parents: Vec<PathBuf> = fs::canonicalize(function.path()).into_iter().collect();
        let subsystems = root.join("sys/class/nvme-subsystem");
        let controllers = function.entries("nvme");
        // With native multipath they hang below an NVMe subsystem, not below the function.
        for name in names(&subsystems) {
            let subsystem = subsystems.join(name);
            if controllers
                .iter()
                .any(|controller| subsystem.join(controller).exists())
            {
                parents.extend(fs::canonicalize(subsystem));
            }
        }
        let files = controllers
            .into_iter()
            .map(|name| Path::new("/dev").join(name))
            .collect();
        Users::of_blocks(root, &blocks(root, &parents), files)
    }

    /// Those of the block devices of these names, such as ublkb0, and of their partitions.
    pub fn of_disks<'a>(root: &Path, names: impl IntoIterator<Item = &'a str>) -> Users {
        let class = root.join("sys/class/block");
        let parents: Vec<PathBuf> = names
            .into_iter()
            .filter_map(|name| fs::canonicalize(class.join(name)).ok())
            .collect();
        Users::of_blocks(root, &blocks(root, &parents), Vec::new())
    }

    /// Those of `blocks`, and of the further `files`.
    fn of_blocks(root: &Path, blocks: &[Block], mut files: Vec<PathBuf>) -> Users {
        let mut users = Vec::new();
        let mounts = mounts(root);
        let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
        for block in blocks {
            let before = users.len();
            let path = Path::new("/dev").join(&block.name);
            let shown = path.display();
            for (_, point) in mounts
                .iter()
                .filter(|(source, _)| *source == block.number || Path::new(source) == path)
            {
                users.push(format!("{shown} is mounted at {point}"));
            }
            if swaps
                .lines()
                .any(|line| line.split_whitespace().next() == path.to_str())
            {
                users.push(format!("{shown} is swap space"));
            }
            for holder in names(&block.folder.join("holders")) {
                let dm = root.join("sys/class/block").join(&holder).join("dm/name");
                let dm = fs::read_to_string(dm).map(|name| format!(" ({})", name.trim()));
                users.push(format!(
                    "{shown} is held by {holder}{}",
                    dm.unwrap_or_default()
                ));
            }
            if users.len() == before && claimed(root, &path) {
                users.push(format!("{shown} is claimed by something in the kernel"));
            }
            files.push(path);
        }
        users.extend(opened(root, &files));
        Users(users)
    }

    /// Those of the VFIO group of a function that is bound to vfio-pci.
    pub fn of_group(root: &Path, function: &Function) -> Users {
        let Some(group) = function.iommu_group() else {
            return Users(Vec::new());
        };
        let file = Path::new("/dev/vfio").join(group.to_string());
        let mut users = opened(root, std::slice::from_ref(&file));
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(real(root, &file));
        if users.is_empty() && open.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
            users.push(format!("{} is open in a process", file.display()));
        }
        Users(users)
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// A block device, or a partition of one.
struct Block {
    name: String,
    /// Major and minor number, as `259:0`.
    number: String,
    folder: PathBuf,
}

/// The block devices and partitions below the folders `parents`.
fn blocks(root: &Path, parents: &[PathBuf]) -> Vec<Block> {
    let class = root.join("sys/class/block");
    names(&class)
        .into_iter()
        .filter_map(|name| {
            let folder = fs::canonicalize(class.join(&name)).ok()?;
            let number = fs::read_to_string(folder.join("dev"))
                .ok()?
                .trim()
                .to_owned();
            let own = parents.iter().any(|parent| folder.starts_with(parent));
            own.then_some(Block {
                name,
                number,
                folder,
            })
        })
        .collect()
}

/// What is mounted, as (major:minor, mount point) and as (source, mount point): some file systems have numbers of their
/// own.
fn mounts(root: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut mounts = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(number), Some(point)) = (fields.get(2), fields.get(4)) else {
            continue;
        };
        let source = fields
            .iter()
            .position(|field| *field == "-")
            .and_then(|at| fields.get(at + 2));
        mounts.push((number.to_string(), point.to_string()));
        mounts.extend(source.map(|source| (source.to_string(), point.to_string())));
    }
    mounts
}

/// True when something in the kernel has claimed the block device.
fn claimed(root: &Path, path: &Path) -> bool {
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(O_EXCL)
        .open(real(root, path));
    open.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)
}

/// The processes that have one of `files` open, in words.
fn opened(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let openers = openers(&root.join("proc"), files);
    openers
        .iter()
        .map(|opener| format!("{} is open in {opener}", opener.file.display()))
        .collect()
}

/// Where an absolute path lies under `root`.
fn real(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Names in a folder, sorted; none when it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
