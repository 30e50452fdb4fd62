//! The engine's device over the driver, against the driver's plain model of a controller: jobs run, data is checked, and
//! wrong data is found.

#[path = "../../host/driver/tests/mock/mod.rs"]
mod mock;

use mock::{Fault, MockPci};
use weir_driver::Pci;
use weir_sim::device::{Clock, DeviceConfig, NvmeDevice};
use weir_sim::fio::{self, DeviceError, PlanOptions, Results, RunOptions};
use weir_sim::pattern::unwritten_block;

const LUNS: u32 = 3;
const BLOCKS: u64 = 512;

/// Time that passes only when it is asked for.
struct MockClock(MockPci);

impl Clock for MockClock {
    fn pass(&mut self, _until_ns: u64) -> Result<(), DeviceError> {
        self.0.relax();
        Ok(())
    }

    fn watch(&mut self, _outstanding: u64, _progress: bool) {}
}

/// A mock whose LUNs hold the pattern of blocks never written.
fn media(seed: u64) -> MockPci {
    let pci = MockPci::new(LUNS, BLOCKS);
    for (n, lun) in pci.device().luns.iter_mut().enumerate() {
        for (lba, block) in lun.data.chunks_exact_mut(512).enumerate() {
            unwritten_block(n as u32, lba as u64, seed, block.try_into().unwrap());
        }
    }
    pci
}

fn run(pci: &MockPci, job: &str, cpus: u32) -> Result<Results, DeviceError> {
    let file = fio::parse("test.fio", job)?;
    let lun_bytes = Some(BLOCKS * 512);
    let plan = fio::plan(
        &file,
        &PlanOptions {
            cpus,
            seed: 9,
            ios: Some(400),
            lun_bytes,
            ..PlanOptions::default()
        },
    )?;
    let config = DeviceConfig {
        cpus: cpus as usize,
        entries: 8,
        max_blocks: 64,
        luns: vec![(0..plan.luns.len() as u32).collect(); cpus as usize],
    };
    let mut device = NvmeDevice::new(pci.clone(), MockClock(pci.clone()), &config)?;
    let options = RunOptions {
        max_transfer_blocks: 64,
        ..RunOptions::default()
    };
    let results = fio::run(&plan, &options, &mut device, &mut |_| ())?;
    assert_eq!(device.in_flight(), 0);
    let stats = device.card_stats(0)?;
    assert!(stats.completed > 0 && stats.depth > 0, "{stats:?}");
    device.shutdown()?;
    Ok(results)
}

const JOB: &str = "[global]\nbs=4k\nrw=randrw\nrwmixread=60\niodepth=8\nnumjobs=2\nverify=crc32c\n\
                   [a]\nfilename=x\n[b]\nfilename=y\nrw=write\nbs=16k\n[c]\nfilename=z\nrw=read\nbs=512\nfsync=0\n";

#[test]
fn jobs_run_and_every_block_is_as_expected() {
    let pci = media(9);
    let results = run(&pci, JOB, 2).unwrap();
    assert!(results.is_good(), "{:?}", results.mismatches);
    assert!(results.luns.iter().all(|lun| lun.peak_outstanding > 1));
    assert_eq!(pci.violations(), Vec::<String>::new());
}

#[test]
fn a_wrong_byte_is_found() {
    let pci = media(9);
    for block in pci.device().luns[2].data.chunks_exact_mut(512) {
        block[300] ^= 1;
    }
    let results = run(&pci, JOB, 2).unwrap();
    assert!(!results.is_good());
    assert_eq!(results.mismatches[0].lun, 2);
}

#[test]
fn a_broken_card_is_an_error() {
    let pci = media(9);
    pci.fault(Fault::UnknownCid);
    let error = run(&pci, JOB, 1).unwrap_err().to_string();
    assert!(!error.is_empty());
}
