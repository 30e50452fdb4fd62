//! Brings a controller up and prints what it is, and its LUNs: `identify DEVICE`. The controller is reset.

mod common;

use common::{Args, Failure};
use weir_driver::backend::Device;
use weir_driver::{Admin, Controller, Options, Pci};

fn main() -> Result<(), Failure> {
    match Args::new("identify DEVICE").device() {
        Device::Vfio(pci) => identify(pci),
        Device::VfioUser(pci) => identify(pci),
    }
}

fn identify<P: Pci>(pci: P) -> Result<(), Failure> {
    let mut controller = Controller::new(pci, Options::default())?;
    let info = controller.info().clone();
    println!("model     {}", info.model);
    println!("serial    {}, firmware {}", info.serial, info.firmware);
    println!("vendor    {:#06x}", info.vendor);
    println!("transfer  up to {} KiB a command", info.max_transfer / 1024);
    println!(
        "queues    {} submission, {} completion",
        info.submission_queues, info.completion_queues
    );
    match info.weir {
        Some(weir) => println!("Weir card {} tags, {} LUNs", weir.tags, weir.luns),
        None => println!("no Weir card: no budgets, no LUN statistics"),
    }
    let smart = controller.smart_log()?;
    println!(
        "health    critical warning {:#04x}, {} K, {} media errors",
        smart.critical_warning, smart.temperature, smart.media_errors
    );
    for lun in controller.luns().to_vec() {
        let id = lun.id.map_or("-".to_owned(), |id| {
            id.iter().map(|byte| format!("{byte:02x}")).collect()
        });
        print!(
            "LUN {:<4}  {} blocks of {} bytes, id {id}",
            lun.index,
            lun.blocks,
            lun.block_size()
        );
        if controller.is_weir() {
            let budget = controller.budget(lun.index)?;
            print!(", depth {}, weight {}", budget.depth(), budget.weight());
        }
        println!();
    }
    controller.shutdown()?;
    Ok(())
}
