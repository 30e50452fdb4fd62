//! The card's PCI configuration space, which its PCIe block keeps: header, PM, MSI-X and PCI Express capabilities.
//!
//! What software writes here reaches the gateware as four wires ([`ConfigSpace::signals`]). Section numbers are PCI
//! Express Base 4.0's.

use weir_nvme::registers::{BAR0_SIZE, msix};
use weir_nvme::weir::{PCI_CLASS, PCI_DEVICE, PCI_VENDOR};

/// Bytes of configuration space, extended space included.
pub const SIZE: usize = 4096;

/// Offset of the command register.
pub const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BAR0: usize = 0x10;
const CAPABILITIES: usize = 0x34;
/// Where the Power Management capability is.
pub const PM: usize = 0x40;
/// Where the MSI-X capability is.
pub const MSIX: usize = 0x50;
/// Where the PCI Express capability is.
pub const EXPRESS: usize = 0x60;

/// Command: memory space enable.
pub const MEMORY_ENABLE: u16 = 1 << 1;
/// Command: bus master enable.
pub const BUS_MASTER: u16 = 1 << 2;
/// MSI-X message control: function mask.
pub const MSIX_MASK: u16 = 1 << 14;
/// MSI-X message control: enable.
pub const MSIX_ENABLE: u16 = 1 << 15;
const FLR: u16 = 1 << 15;

/// The wires from the PCIe block to the gateware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The card may issue requests.
    pub bus_master_enable: bool,
    /// MSI-X is on.
    pub msix_enable: bool,
    /// All vectors are masked.
    pub msix_function_mask: bool,
}

/// The space: 4 KiB, little-endian, with the writable bits that software may change.
#[derive(Clone)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
    flr: bool,
}

impl ConfigSpace {
    /// After power on: nothing enabled, D0. `vectors` (1..=2048) MSI-X vectors; `mps` is the largest payload offered, in
    /// bytes; `generation` and `lanes` describe the link.
    pub fn new(vectors: u16, mps: u16, generation: u8, lanes: u8) -> Self {
        let mut space = ConfigSpace {
            bytes: vec![0; SIZE],
            writable: vec![0; SIZE],
            flr: false,
        };
        space.put16(0x00, PCI_VENDOR);
        space.put16(0x02, PCI_DEVICE);
        space.allow16(
            COMMAND,
            MEMORY_ENABLE | BUS_MASTER | 1 << 6 | 1 << 8 | 1 << 10,
        );
        // Capabilities list.
        space.put16(STATUS, 1 << 4);
        space.put32(0x08, PCI_CLASS << 8);
        // A 64-bit memory BAR, not prefetchable; address bits below its size read as 0.
        space.put32(BAR0, 0b100);
        space.allow32(BAR0, !(BAR0_SIZE as u32 - 1));
        space.allow32(BAR0 + 4, u32::MAX);
        space.put16(0x2c, PCI_VENDOR);
        space.put16(0x2e, PCI_DEVICE);
        space.put16(CAPABILITIES, PM as u16);
        space.allow16(0x3c, 0x00ff);

        // Power Management, version 3, no PME; No_Soft_Reset. The power state must read back what was written.
        space.put32(PM, 0x01 | (MSIX as u32) << 8 | 3 << 16);
        space.put16(PM + 4, 1 << 3);
        space.allow16(PM + 4, 0b11);

        space.put32(
            MSIX,
            0x11 | (EXPRESS as u32) << 8 | (u32::from(vectors.max(1)) - 1) << 16,
        );
        space.allow16(MSIX + 2, MSIX_ENABLE | MSIX_MASK);
        // Both in BAR0 (BIR 0).
        space.put32(MSIX + 4, msix::TABLE as u32);
        space.put32(MSIX + 8, msix::PBA as u32);

        // PCI Express, version 2, endpoint.
        let payload = u32::from(mps.max(128) / 128).ilog2();
        space.put32(EXPRESS, 0x10 | 2 << 16);
        // Extended tags, role-based error reporting, function level reset.
        space.put32(EXPRESS + 4, payload | 1 << 5 | 1 << 15 | 1 << 28);
        space.put16(EXPRESS + 8, 1 << 4 | 2 << 12);
        space.allow16(EXPRESS + 8, 0x7fff);
        let link = u32::from(generation) | u32::from(lanes) << 4;
        space.put32(EXPRESS + 0x0c, link);
        space.allow16(EXPRESS + 0x10, 0x00c3);
        space.put16(EXPRESS + 0x12, link as u16);
        space
    }

    /// Bytes from `offset` on; outside the space they read as all ones.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        for (n, byte) in out.iter_mut().enumerate() {
            *byte = self
                .bytes
                .get(offset.wrapping_add(n))
                .copied()
                .unwrap_or(0xff);
        }
    }

    /// Writes the bits that software may change; others keep their value.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        for (n, byte) in data.iter().enumerate() {
            let at = offset.wrapping_add(n);
            if let (Some(old), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *old = *old & !mask | byte & mask;
            }
            // Initiate Function Level Reset reads as 0 (7.5.3.4).
            if at == EXPRESS + 9 && byte & 0x80 != 0 {
                self.flr = true;
            }
        }
    }

    /// Reads 16 bits.
    pub fn read16(&self, offset: usize) -> u16 {
        let mut out = [0; 2];
        self.read(offset, &mut out);
        u16::from_le_bytes(out)
    }

    /// Sets and clears bits of a 16-bit register, as software does.
    pub fn change16(&mut self, offset: usize, clear: u16, set: u16) {
        let value = self.read16(offset) & !clear | set;
        self.write(offset, &value.to_le_bytes());
    }

    /// The wires to the gateware as the registers stand. A function that is not in D0 issues no requests (5.3.1.4).
    pub fn signals(&self) -> Signals {
        let (command, control) = (self.read16(COMMAND), self.read16(MSIX + 2));
        let awake = self.read16(PM + 4) & 0b11 == 0;
        Signals {
            bus_master_enable: awake && command & BUS_MASTER != 0,
            msix_enable: control & MSIX_ENABLE != 0,
            msix_function_mask: control & MSIX_MASK != 0,
        }
    }

    /// Did software start a Function Level Reset since the last call? The registers are then as after power on.
    pub fn take_flr(&mut self) -> bool {
        let flr = std::mem::take(&mut self.flr);
        if flr {
            let vectors = (self.read16(MSIX + 2) & 0x7ff) + 1;
            let payload = 128 << (self.bytes[EXPRESS + 4] & 7);
            let link = self.read16(EXPRESS + 0x0c);
            *self = ConfigSpace::new(
                vectors,
                payload,
                (link & 0xf) as u8,
                (link >> 4) as u8 & 0x3f,
            );
        }
        flr
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn allow16(&mut self, at: usize, mask: u16) {
        let mask = if at == EXPRESS + 8 { mask & !FLR } else { mask };
        self.writable[at..at + 2].copy_from_slice(&mask.to_le_bytes());
    }

    fn allow32(&mut self, at: usize, mask: u32) {
        self.writable[at..at + 4].copy_from_slice(&mask.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(17, 256, 3, 8)
    }

    fn read32(space: &ConfigSpace, at: usize) -> u32 {
        let mut out = [0; 4];
        space.read(at, &mut out);
        u32::from_le_bytes(out)
    }

    #[test]
    fn capabilities_are_chained() {
        let space = space();
        let mut found = Vec::new();
        let mut at = usize::from(space.bytes[CAPABILITIES]);
        while at != 0 {
            found.push(space.bytes[at]);
            at = usize::from(space.bytes[at + 1]);
        }
        assert_eq!(found, [0x01, 0x11, 0x10]);
        assert_eq!(space.read16(MSIX + 2), 16);
        assert_eq!(read32(&space, 0x08) >> 8, 0x010802);
    }

    #[test]
    fn a_bar_tells_its_size() {
        let mut space = space();
        space.write(BAR0, &[0xff; 8]);
        assert_eq!(read32(&space, BAR0), 0xffff_c004);
        assert_eq!(read32(&space, BAR0 + 4), u32::MAX);
        space.write(0, &[0xff; 4]);
        assert_eq!(space.read16(0), PCI_VENDOR, "a read-only register changed");
        assert_eq!(read32(&space, SIZE - 2), 0xffff_0000, "beyond the end");
    }

    #[test]
    fn software_drives_the_wires() {
        let mut space = space();
        assert_eq!(space.signals(), Signals::default());
        space.change16(COMMAND, 0, MEMORY_ENABLE | BUS_MASTER);
        space.change16(MSIX + 2, 0, MSIX_ENABLE);
        assert_eq!(
            space.signals(),
            Signals {
                bus_master_enable: true,
                msix_enable: true,
                msix_function_mask: false
            }
        );
        space.change16(PM + 4, 0, 3);
        assert!(
            !space.signals().bus_master_enable,
            "a function in D3hot is no bus master"
        );
        assert_eq!(
            space.read16(PM + 4) & 3,
            3,
            "the power state must read back"
        );
    }

    #[test]
    fn a_function_level_reset_clears_what_software_set() {
        let mut space = space();
        space.change16(COMMAND, 0, BUS_MASTER);
        assert!(!space.take_flr());
        space.change16(EXPRESS + 8, 0, FLR);
        assert!(space.take_flr());
        assert!(!space.take_flr());
        assert_eq!(space.read16(COMMAND), 0);
        assert_eq!(
            (space.read16(MSIX + 2), space.read16(EXPRESS + 8) & FLR),
            (16, 0)
        );
        assert_eq!(read32(&space, EXPRESS + 0x0c), 0x83);
    }
}
