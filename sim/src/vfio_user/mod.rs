//! The simulated card as a PCI device over vfio-user: for QEMU's guests, and for drivers in other processes.
//!
//! # Architecture
//! ```text
//!   client ═ Unix socket ═▶ server::Server ─▶ device::Device ─▶ world::World ─▶ card
//!      ▲                     one client at      configuration space, BAR0,
//!      ║                     a time; time       interrupts, reset          │
//!      ╚═ its memory (memory::foreign) ◀═ DMA ═════════════════════════════╝
//! ```
//! - [`device::Device`] answers messages as Linux's vfio-pci does for a real function.
//! - [`server::Server`] owns the socket, and lets time pass: as fast as the simulator can while the card has work; none
//!   while it has not, when the process sleeps in poll(2). Real time there is the simulator's, never the card's.
//!
//! A client is not trusted: whatever it sends, or its death at any moment, ends that client and nothing else. Its memory
//! and eventfds are dropped at once, the function is reset, and the next client finds it as after power on; LUNs keep
//! their data.
//!
//! # What it leaves out
//! INTx and MSI, migration, memory without a file descriptor (accesses to it are errors), several functions, AER.

pub mod device;
pub mod server;
