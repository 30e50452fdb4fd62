//! Prints the registers that say what an NVMe controller is and how it does. It only reads, but a function is reset
//! when it is opened; `--reset` does so once more, by the function's own reset.

mod common;

use common::{Args, Failure, fail};
use weir_driver::backend::Device;
use weir_driver::nvme::registers::{ALL_ONES, Cap, Cc, Csts, offset};
use weir_driver::{Pci, nvme::registers::cq_head_doorbell};

fn main() -> Result<(), Failure> {
    let mut args = Args::new("regs DEVICE [--reset]");
    let reset = args.flag("--reset");
    match args.device() {
        Device::Vfio(pci) => {
            if reset {
                pci.reset()?;
            }
            regs(&pci)
        }
        Device::VfioUser(pci) => {
            if reset {
                pci.reset()?;
            }
            regs(&pci)
        }
    }
}

fn regs(pci: &impl Pci) -> Result<(), Failure> {
    let low = pci.read32(offset::CAP);
    if low == ALL_ONES {
        return fail("CAP reads all ones: the device is gone");
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
