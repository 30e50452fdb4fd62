//! Prints the registers that say what an NVMe controller is and how it does: `regs DEVICE`. Changes nothing.

use std::error::Error;
use std::process::ExitCode;
use weir_driver::backend::Device;
use weir_driver::nvme::registers::{ALL_ONES, Cap, Cc, Csts, offset};
use weir_driver::{Pci, nvme::registers::cq_head_doorbell};

fn main() -> ExitCode {
    match open() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("regs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: regs DEVICE")?;
    match Device::open(&name)? {
        Device::Vfio(pci) => regs(&pci),
    }
}

fn regs(pci: &impl Pci) -> Result<(), Box<dyn Error>> {
    let low = pci.read32(offset::CAP);
    if low == ALL_ONES {
        return Err("CAP reads all ones: the device is gone".into());
    }
    let cap = Cap::from(u64::from(pci.read32(offset::CAP + 4)) << 32 | u64::from(low));
    let version = pci.read32(offset::VS);
    let cc = Cc::from(pci.read32(offset::CC));
    let csts = Csts::from(pci.read32(offset::CSTS));
    println!("CAP   {:#018x}", u64::from(cap));
    println!(
        "      MQES {} entries, CQR {}, TO {} ms, doorbells {} bytes apart, CSS {:#04x}, pages 2^{} to 2^{}",
        u32::from(cap.mqes()) + 1,
        cap.cqr(),
        u32::from(cap.to()) * 500,
        4 << cap.dstrd(),
        cap.css(),
        12 + cap.mpsmin(),
        12 + cap.mpsmax(),
    );
    println!(
        "VS    {version:#010x}: NVMe {}.{}.{}",
        version >> 16,
        version >> 8 & 0xFF,
        version & 0xFF
    );
    println!("CC    {:#010x}: EN {}", u32::from(cc), cc.en());
    println!(
        "CSTS  {:#010x}: RDY {}, CFS {}, SHST {}",
        u32::from(csts),
        csts.rdy(),
        csts.cfs(),
        csts.shst()
    );
    let doorbells = (pci.bar0_len() - cq_head_doorbell(0, 0)) / (8 << cap.dstrd());
    println!(
        "BAR0  {} bytes, room for the doorbells of {doorbells} queues; {} interrupt vectors",
        pci.bar0_len(),
        pci.vectors()
    );
    Ok(())
}
