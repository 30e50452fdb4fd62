//! [`Guest`]: a QEMU, and its console read line by line as it comes.

use crate::initrd;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that the console may be silent. The steps are short; a busy machine of two cores is slow.
pub const SILENCE: Duration = Duration::from_secs(150);

/// The kernel's command line. `iommu=pt`: the kernel's own drivers pass the IOMMU, vfio-pci does not. A simulated card
/// may take longer over an I/O than the 30 s that nvme allows. The self-tests of crypto would run beside the first steps.
const KERNEL: &str = "console=ttyS0 quiet panic=-1 intel_iommu=on iommu=pt nvme_core.io_timeout=120 cryptomgr.notests";

/// What is added for counting. A kernel on one CPU would patch its LOCK prefixes away, and they are to be counted.
const KERNEL_COUNTED: &str = " nokaslr tsc=reliable noreplace-smp";

/// What the guest finds on its PCI bus.
pub enum Device {
    /// The card served at this socket.
    Card(PathBuf),
    /// QEMU's own nvme, with a namespace for each image.
    Own(Vec<PathBuf>),
    /// QEMU's own nvme with one namespace that keeps nothing and takes no time; no shadow doorbells, which would hide
    /// I/Os from the counting. The benchmark's.
    #[allow(dead_code)]
    Null,
}

impl Device {
    /// QEMU's own nvme with `luns` namespaces of 64 MiB, in sparse files in `dir`.
    pub fn own_nvme(dir: &Path, luns: usize) -> Device {
        let image = |lun| {
            let path = dir.join(format!("own{lun}.raw"));
            File::create(&path).unwrap().set_len(64 << 20).unwrap();
            path
        };
        Device::Own((0..luns).map(image).collect())
    }

    /// QEMU's arguments for it, as device number `n`.
    fn arguments(&self, n: usize) -> Vec<String> {
        let port = format!("pcie-root-port,id=port{n},chassis={n},slot={n}");
        let mut list = vec!["-device".into(), port];
        match self {
            Device::Card(socket) => {
                // JSON, because the address of the socket is a structure.
                let address = format!(r#"{{"type":"unix","path":"{}"}}"#, socket.display());
                list.extend(["-device".into(), format!(r#"{{"driver":"vfio-user-pci","bus":"port{n}","socket":{address},"x-msg-timeout":30000}}"#)]);
            }
            Device::Null => list.extend([
                "-blockdev".into(),
                format!("driver=null-co,node-name=null{n},size=1073741824,read-zeroes=off"),
                "-device".into(),
                format!("nvme,bus=port{n},serial=null{n},drive=null{n},dbcs=off"),
            ]),
            Device::Own(images) => {
                list.extend([
                    "-device".into(),
                    format!("nvme,id=own{n},bus=port{n},serial=own{n}"),
                ]);
                for (i, image) in images.iter().enumerate() {
                    let name = format!("own{n}-{}", i + 1);
                    list.extend([
                        "-blockdev".into(),
                        format!("driver=file,node-name={name},filename={}", image.display()),
                        "-device".into(),
                        format!("nvme-ns,drive={name},bus=own{n},nsid={}", i + 1),
                    ]);
                }
            }
        }
        list
    }
}

/// What a line of the console says.
pub enum Event {
    /// A step begins; [`Guest::must_pass`] remembers which.
    Step,
    /// Block `block` of LUN `lun` (its NSID) was written and acknowledged.
    Ack { lun: u32, block: u64 },
    /// The script ended with this status.
    Exit(i32),
    /// QEMU ended.
    Ended,
    /// Anything else.
    Other,
}

/// What to boot.
pub struct Boot<'a> {
    /// Before each line of its console.
    pub name: &'a str,
    pub devices: &'a [Device],
    /// The script of `scripts/` to run; it may read the others there.
    pub test: &'a str,
    /// Static programs that come into the guest's path.
    pub programs: &'a [PathBuf],
    /// Files (name, text) that come into /root.
    pub files: &'a [(&'a str, &'a str)],
    /// Instructions are counted, for the benchmark.
    pub counting: Option<&'a Counting>,
}

/// How instructions are counted.
pub struct Counting {
    /// The plugin and its arguments: `PATH,name=value,...`.
    pub plugin: String,
    /// vCPUs. With one, time is counted in instructions; with more, it is the host's.
    pub cpus: u32,
}

/// A running guest; killed when dropped.
pub struct Guest {
    name: String,
    qemu: Child,
    lines: Receiver<String>,
    steps: Vec<String>,
    started: Instant,
}

impl Guest {
    /// Starts QEMU.
    pub fn boot(dir: &Path, boot: &Boot) -> Guest {
        let tools = initrd::tools();
        let initrd = initrd::initrd(dir, boot).expect("the initrd could not be made");
        let mut qemu = Command::new(tools.join("qemu"));
        let mut option = |text: &str| {
            qemu.args(text.split_whitespace());
        };
        option(
            "-nodefaults -no-user-config -display none -no-reboot -serial stdio -bios qboot.rom",
        );
        option("-M q35,kernel-irqchip=split,memory-backend=mem0 -cpu max -m 768");
        // The card's server maps the guest's memory: a shared memfd. vfio-pci needs the IOMMU's caching mode.
        option("-object memory-backend-memfd,id=mem0,size=768M,share=on");
        option("-device intel-iommu,intremap=on,caching-mode=on");
        let mut kernel = KERNEL.to_owned();
        match boot.counting {
            None => option("-accel tcg,thread=multi -smp 3"),
            Some(counting) => {
                match counting.cpus {
                    // A clock that counts instructions, so that a run repeats.
                    1 => option("-accel tcg,thread=single -icount shift=0 -smp 1"),
                    // QEMU 11.1.3 ends with "Bad icount read" when a plugin, -icount and a second vCPU come together.
                    cpus => option(&format!("-accel tcg,thread=multi -smp {cpus}")),
                }
                qemu.arg("-plugin").arg(&counting.plugin);
                kernel += KERNEL_COUNTED;
            }
        }
        for (n, device) in boot.devices.iter().enumerate() {
            qemu.args(device.arguments(n + 1));
        }
        qemu.arg("-kernel").arg(tools.join("vmlinuz"));
        qemu.arg("-initrd").arg(initrd).args(["-append", &kernel]);
        Guest::start(boot, qemu)
    }

    /// Starts QEMU by the first command line of docs/serve.md, the card served at `socket`.
    pub fn documented(dir: &Path, boot: &Boot, socket: &Path) -> Guest {
        let tools = initrd::tools();
        let initrd = initrd::initrd(dir, boot).expect("the initrd could not be made");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/serve.md");
        let document = fs::read_to_string(path).expect("docs/serve.md is there");
        let lines = document
            .lines()
            .skip_while(|line| !line.starts_with("    qemu-system-x86_64 "))
            .take_while(|line| !line.is_empty());
        let text: String = lines.map(|line| line.trim_end_matches('\\')).collect();
        let mut words = words(&text).into_iter();
        assert_eq!(words.next().as_deref(), Some("qemu-system-x86_64"));
        let mut qemu = Command::new(tools.join("qemu"));
        for word in words {
            match word.as_str() {
                "vmlinuz" => qemu.arg(tools.join("vmlinuz")),
                "initrd" => qemu.arg(&initrd),
                word => qemu.arg(word.replace("card.sock", socket.to_str().expect("UTF-8"))),
            };
        }
        Guest::start(boot, qemu)
    }

    fn start(boot: &Boot, mut qemu: Command) -> Guest {
        qemu.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let started = Instant::now();
        let mut qemu = qemu.spawn().expect("QEMU did not start");
        let console = qemu.stdout.take().expect("it was piped");
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(console)
                .split(b'\n')
                .map_while(io::Result::ok)
            {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Guest {
            name: boot.name.into(),
            qemu,
            lines,
            steps: Vec::new(),
            started,
        }
    }

    /// The next line of the console, which is printed too. Fails the test when none comes for [`SILENCE`].
    pub fn next(&mut self) -> Event {
        let line = match self.lines.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Event::Ended,
            Err(RecvTimeoutError::Timeout) => {
                self.fail(&format!("silent for {} s", SILENCE.as_secs()))
            }
        };
        println!(
            "[{} {:6.1}] {line}",
            self.name,
            self.started.elapsed().as_secs_f64()
        );
        let mut words = line.split_whitespace();
        match words.next() {
            Some("WEIR-STEP") => {
                self.steps.push(line["WEIR-STEP".len()..].trim().to_owned());
                Event::Step
            }
            Some("WEIR-EXIT") => Event::Exit(
                words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(-1),
            ),
            Some("WEIR-ACK") => {
                match (words.next().map(str::parse), words.next().map(str::parse)) {
                    (Some(Ok(lun)), Some(Ok(block))) => Event::Ack { lun, block },
                    _ => Event::Other,
                }
            }
            _ => Event::Other,
        }
    }

    /// Runs to the end of the script, which must be good, and must have taken these steps in this order, among others.
    pub fn must_pass(&mut self, steps: &[&str]) {
        let status = loop {
            match self.next() {
                Event::Exit(status) => break status,
                Event::Ended => self.fail("QEMU ended before the script did"),
                _ => {}
            }
        };
        if status != 0 {
            self.fail(&format!("the script ended with status {status}"));
        }
        let mut taken = self.steps.iter();
        for step in steps {
            if !taken.any(|each| each.starts_with(step)) {
                self.fail(&format!("step '{step}' was not taken where it belongs"));
            }
        }
    }

    /// SIGKILL, in the middle of whatever it does.
    pub fn kill(mut self) {
        self.qemu.kill().unwrap();
        self.qemu.wait().unwrap();
    }

    /// Fails the test.
    pub fn fail(&self, why: &str) -> ! {
        let step = self.steps.last().map_or("booting", |step| step.as_str());
        panic!("guest {}: {why}; it was at: {step}", self.name);
    }
}

/// The words of a command line, as a shell reads them: single quotes hold one together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
