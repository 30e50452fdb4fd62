//! `weir bind` over a fake tree. Writing to it changes it as the kernel would.

use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const BDF: &str = "0000:01:00.0";

/// A host with one NVMe controller, bound to nvme, in IOMMU group 7, with one block device and a partition of it.
fn host() -> (TempDir, Host) {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    for driver in ["nvme", "vfio-pci", "e1000"] {
        fs::create_dir_all(root.join("sys/bus/pci/drivers").join(driver)).unwrap();
    }
    function(root, BDF, "0x010802", Some("nvme"));
    let block = device(root, BDF).join("nvme/nvme0/nvme0n1");
    for (folder, number) in [(block.clone(), "259:0"), (block.join("nvme0n1p1"), "259:1")] {
        fs::create_dir_all(folder.join("holders")).unwrap();
        fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
        let class = root.join("sys/class/block");
        fs::create_dir_all(&class).unwrap();
        symlink(&folder, class.join(folder.file_name().unwrap())).unwrap();
    }
    write(
        root,
        "proc/self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
    );
    write(root, "proc/swaps", "Filename Type Size Used Priority\n");
    let mut host = Host::new(root);
    host.write = kernel;
    (dir, host)
}

fn device(root: &Path, bdf: &str) -> PathBuf {
    root.join("sys/bus/pci/devices").join(bdf)
}

fn write(root: &Path, name: &str, text: &str) {
    fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
    fs::write(root.join(name), text).unwrap();
}

fn function(root: &Path, bdf: &str, class: &str, driver: Option<&str>) {
    let path = device(root, bdf);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("class"), format!("{class}\n")).unwrap();
    fs::write(path.join("driver_override"), "(null)\n").unwrap();
    let group = root.join("sys/kernel/iommu_groups/7");
    fs::create_dir_all(group.join("devices")).unwrap();
    symlink(&group, path.join("iommu_group")).unwrap();
    symlink(&path, group.join("devices").join(bdf)).unwrap();
    if let Some(driver) = driver {
        symlink(
            root.join("sys/bus/pci/drivers").join(driver),
            path.join("driver"),
        )
        .unwrap();
    }
}

/// What the kernel does when the files of sysfs are written.
fn kernel(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let bus = path
        .ancestors()
        .find(|path| path.ends_with("bus/pci"))
        .unwrap();
    let function = bus.join("devices").join(text);
    match name {
        "driver_override" => fs::write(path, text)?,
        "unbind" => {
            let driver = fs::read_link(function.join("driver"))?;
            assert_eq!(
                driver,
                path.parent().unwrap(),
                "unbound from another driver's file"
            );
            fs::remove_file(function.join("driver"))?;
        }
        "drivers_probe" if !function.join("driver").exists() => {
            let chosen = fs::read_to_string(function.join("driver_override"))?;
            let driver = match chosen.trim() {
                "" | "(null)" => "nvme",
                name => name,
            };
            if bus.join("takes-nothing").exists() && driver == VFIO {
                return Ok(());
            }
            symlink(bus.join("drivers").join(driver), function.join("driver"))?;
        }
        "drivers_probe" => {}
        _ => panic!("wrote {}", path.display()),
    }
    Ok(())
}

fn bdf() -> Bdf {
    BDF.parse().unwrap()
}

fn driver(host: &Host) -> Option<String> {
    host.sysfs.function(&bdf()).unwrap().driver()
}

/// Binds, and expects a refusal that says `part` and changes nothing.
fn refused(host: &Host, part: &str) {
    let before = driver(host);
    match host.bind(&bdf()) {
        Err(Failure::Usage(text)) => assert!(text.contains(part), "{text} does not say {part}"),
        Err(Failure::Wrong(text)) => panic!("failed instead of refusing: {text}"),
        Ok(text) => panic!("not refused: {text}"),
    }
    assert_eq!(driver(host), before);
    let text = fs::read_to_string(device(&host.root, BDF).join("driver_override"));
    assert_eq!(text.unwrap_or_default().trim(), "(null)");
}

fn ok(result: Result<String, Failure>) -> String {
    match result {
        Ok(text) => text,
        Err(Failure::Usage(text) | Failure::Wrong(text)) => panic!("{text}"),
    }
}

#[test]
fn there_and_back_and_each_twice() {
    let (_dir, host) = host();
    assert!(ok(host.unbind(&bdf())).contains("not bound to vfio-pci, but to nvme"));
    assert!(ok(host.bind(&bdf())).contains("is bound to vfio-pci: IOMMU group 7, /dev/vfio/7"));
    assert_eq!(driver(&host).as_deref(), Some("vfio-pci"));
    assert!(ok(host.bind(&bdf())).contains("already bound"));
    assert!(ok(host.unbind(&bdf())).contains("is bound to nvme"));
    assert_eq!(driver(&host).as_deref(), Some("nvme"));
    let text = fs::read_to_string(device(&host.root, BDF).join("driver_override")).unwrap();
    assert_eq!(text.trim(), "");
}

#[test]
fn a_function_without_driver_is_bound_and_an_override_alone_is_taken_back() {
    let (_dir, host) = host();
    fs::remove_file(device(&host.root, BDF).join("driver")).unwrap();
    fs::write(
        device(&host.root, BDF).join("driver_override"),
        "vfio-pci\n",
    )
    .unwrap();
    assert!(ok(host.unbind(&bdf())).contains("but to nvme"));
    fs::remove_file(device(&host.root, BDF).join("driver")).unwrap();
    ok(host.bind(&bdf()));
    assert_eq!(driver(&host).as_deref(), Some("vfio-pci"));
}

#[test]
fn a_device_in_use_is_refused_with_the_reason() {
    let (_dir, host) = host();
    let root = host.root.clone();
    let mounted = |source: &str, number: &str| {
        let line = format!("30 22 {number} / /data rw,relatime shared:1 - ext4 {source} rw\n");
        write(&root, "proc/self/mountinfo", &line);
    };
    mounted("/dev/nvme0n1p1", "259:1");
    refused(&host, "/dev/nvme0n1p1 is mounted at /data");
    // As btrfs has it: a number of its own.
    mounted("/dev/nvme0n1", "0:44");
    refused(&host, "/dev/nvme0n1 is mounted at /data");
    mounted("/dev/nvme1n1", "259:10");
    write(
        &root,
        "proc/swaps",
        "Filename Type\n/dev/nvme0n1p1 partition 8 0 -2\n",
    );
    refused(&host, "/dev/nvme0n1p1 is swap space");
    write(&root, "proc/swaps", "");
    let holder = device(&root, BDF).join("nvme/nvme0/nvme0n1/holders/dm-0");
    fs::create_dir(&holder).unwrap();
    write(&root, "sys/class/block/dm-0/dm/name", "vg-home\n");
    refused(&host, "/dev/nvme0n1 is held by dm-0 (vg-home)");
    fs::remove_dir(&holder).unwrap();
    for file in ["/dev/nvme0n1", "/dev/nvme0"] {
        let fds = root.join("proc/77/fd");
        fs::create_dir_all(&fds).unwrap();
        write(&root, "proc/77/comm", "fio\n");
        symlink(file, fds.join("5")).unwrap();
        refused(&host, &format!("{file} is open in process 77 (fio)"));
        fs::remove_file(fds.join("5")).unwrap();
    }
    ok(host.bind(&bdf()));
}

#[test]
fn a_multipath_head_below_the_subsystem_counts() {
    let (_dir, host) = host();
    let root = host.root.clone();
    let head = root.join("sys/devices/virtual/nvme-subsystem/nvme-subsys0");
    fs::create_dir_all(head.join("nvme0n7/holders")).unwrap();
    fs::write(head.join("nvme0n7/dev"), "259:9\n").unwrap();
    fs::create_dir_all(head.join("nvme0")).unwrap();
    fs::create_dir_all(root.join("sys/class/nvme-subsystem")).unwrap();
    symlink(&head, root.join("sys/class/nvme-subsystem/nvme-subsys0")).unwrap();
    symlink(head.join("nvme0n7"), root.join("sys/class/block/nvme0n7")).unwrap();
    let line = "30 22 259:9 / /srv rw - xfs /dev/nvme0n7 rw\n";
    write(&root, "proc/self/mountinfo", line);
    refused(&host, "/dev/nvme0n7 is mounted at /srv");
}

#[test]
fn what_cannot_go_to_user_space_is_refused() {
    let (_dir, host) = host();
    let root = host.root.clone();
    let path = device(&root, BDF);
    let missing = host.bind(&"0000:09:00.0".parse().unwrap());
    assert!(
        matches!(missing, Err(Failure::Usage(text)) if text.contains("no PCI function 0000:09:00.0"))
    );
    fs::write(path.join("class"), "0x020000\n").unwrap();
    refused(&host, "no NVMe controller: its class is 020000");
    fs::write(path.join("class"), "0x010802\n").unwrap();
    function(&root, "0000:01:00.1", "0x020000", Some("e1000"));
    refused(&host, "0000:01:00.1 (e1000)");
    fs::remove_file(device(&root, "0000:01:00.1").join("driver")).unwrap();
    fs::remove_dir(root.join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    refused(&host, "modprobe vfio-pci");
    fs::create_dir(root.join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    fs::remove_file(path.join("iommu_group")).unwrap();
    refused(&host, "no IOMMU group");
}

#[test]
fn a_driver_that_does_not_take_it_is_said_and_the_old_one_has_it_again() {
    let (_dir, host) = host();
    write(&host.root, "sys/bus/pci/takes-nothing", "");
    let result = host.bind(&bdf());
    assert!(
        matches!(result, Err(Failure::Wrong(text)) if text.contains("did not take") && text.contains("bound to nvme"))
    );
    assert_eq!(driver(&host).as_deref(), Some("nvme"));
}

#[test]
fn without_root_that_is_said_and_nothing_is_taken_away() {
    let (_dir, mut host) = host();
    host.write = |_, _| Err(io::ErrorKind::PermissionDenied.into());
    refused(&host, "only root may bind drivers");
}

#[test]
fn a_group_that_is_open_is_not_unbound() {
    let (_dir, host) = host();
    ok(host.bind(&bdf()));
    let fds = host.root.join("proc/78/fd");
    fs::create_dir_all(&fds).unwrap();
    write(&host.root, "proc/78/comm", "weir\n");
    symlink("/dev/vfio/7", fds.join("9")).unwrap();
    let result = host.unbind(&bdf());
    assert!(
        matches!(result, Err(Failure::Usage(text)) if text.contains("open in process 78 (weir)"))
    );
    assert_eq!(driver(&host).as_deref(), Some("vfio-pci"));
}
