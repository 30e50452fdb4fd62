//! `weir lun` on a served card, as a user runs it.

use std::process::{Command, Output};

use super::open;
use super::server::Server;

fn lun(action: &[&str], device: &str) -> Output {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("lun").args(action).args(["--device", device]);
    weir.output().unwrap()
}

/// What a run that must succeed printed.
fn good(action: &[&str], device: &str) -> String {
    let output = lun(action, device);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{action:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(action: &[&str], device: &str, part: &str) {
    let output = lun(action, device);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{action:?}: {said}");
    assert!(
        said.contains(part),
        "{action:?}: {said} does not say {part}"
    );
}

#[test]
fn weir_lun_lists_counts_and_sets() {
    let server = Server::start(&["--config", "small", "--lun-size", "1m"]);
    let device = format!("vfio-user:{}", server.socket().display());
    let list = good(&["list"], &device);
    assert!(
        list.contains("32 tags, of which 32 may be used; fairness none; 4 LUNs"),
        "{list}"
    );
    assert!(
        list.contains("  3     4  1.0 MiB  512 B     32       1"),
        "{list}"
    );

    let set = [
        "set",
        "--depth",
        "5",
        "--depth",
        "lun2=3",
        "--weight",
        "1=9",
        "--tags",
        "16",
        "--fairness",
        "even",
    ];
    let output = lun(&set, &device);
    let (text, note) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        text.contains("of which 16 may be used; fairness even"),
        "{text}{note}"
    );
    assert!(
        text.contains("  1     2  1.0 MiB  512 B      5       9"),
        "{text}"
    );
    assert!(
        text.contains("  2     3  1.0 MiB  512 B      3       1"),
        "{text}"
    );
    assert!(note.contains("no driver had the controller"), "{note}");
    // As it says: the next client finds the card reset.
    assert!(good(&["list"], &device).contains("of which 32 may be used; fairness none"));

    let stat = good(&["stat", "--json"], &device);
    assert_eq!(stat.matches("\"deferred_depth\": 0").count(), 4, "{stat}");
    let watch = good(
        &["watch", "--interval", "10ms", "--count", "3", "--json"],
        &device,
    );
    assert_eq!(watch.lines().count(), 3, "{watch}");
    assert!(
        watch.lines().all(|line| line.contains("\"iops\":0.0")),
        "{watch}"
    );

    refused(
        &["set", "--depth", "33"],
        &device,
        "--depth 33: must be 1 to 32",
    );
    refused(&["set", "--weight", "4=1"], &device, "there is no LUN 4");
    refused(&["set"], &device, "required");
    let pci = open(server.socket());
    refused(&["list"], &device, "another process has the device");
    drop(pci);
    good(&["list"], &device);
    server.kill();
    refused(&["list"], &device, "card.sock");
}
