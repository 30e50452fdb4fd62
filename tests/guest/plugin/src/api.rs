//! QEMU's plugin API, as far as it is used: `include/plugins/qemu-plugin.h` of QEMU 11.1, API version 7 (names there).
//! Debian has no package with that header. The only file with `unsafe` code; what it exports is safe.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};

/// API version that the plugin asks for; QEMU refuses to load it when it has another.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 7;

type PluginId = u64;
/// `enum qemu_plugin_cb_flags`: the callbacks here read no registers.
const NO_REGS: c_int = 0;
/// `enum qemu_plugin_mem_rw`: writes.
const WRITES: c_int = 2;
/// `enum qemu_plugin_op`: adds an immediate.
const ADD: c_int = 0;

#[repr(C)]
pub struct Tb {
    _private: [u8; 0],
}
#[repr(C)]
pub struct Insn {
    _private: [u8; 0],
}
#[repr(C)]
struct HwAddr {
    _private: [u8; 0],
}
#[repr(C)]
#[derive(Clone, Copy)]
struct U64Entry {
    score: *mut c_void,
    offset: usize,
}
/// `qemu_plugin_mem_value`: a tag, and a union as large as 128 bits.
#[repr(C)]
struct MemValue {
    kind: c_int,
    data: [u64; 2],
}

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: PluginId,
        call: extern "C" fn(*const Tb, *mut c_void),
        user: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(
        id: PluginId,
        call: extern "C" fn(*mut c_void),
        user: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        insn: *mut Insn,
        op: c_int,
        entry: U64Entry,
        imm: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        call: extern "C" fn(u32, *mut c_void),
        flags: c_int,
        user: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        call: extern "C" fn(u32, u32, u64, *mut c_void),
        flags: c_int,
        which: c_int,
        user: *mut c_void,
    );
    fn qemu_plugin_get_hwaddr(info: u32, vaddr: u64) -> *mut HwAddr;
    fn qemu_plugin_hwaddr_is_io(address: *const HwAddr) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const HwAddr) -> u64;
    fn qemu_plugin_hwaddr_device_name(address: *const HwAddr) -> *const c_char;
    fn qemu_plugin_mem_get_value(info: u32) -> MemValue;
    fn qemu_plugin_scoreboard_new(element: usize) -> *mut c_void;
    fn qemu_plugin_u64_sum(entry: U64Entry) -> u64;
}

/// Counters that the translated code itself adds to, an array for each vCPU.
pub struct Counters {
    score: *mut c_void,
    len: usize,
}

// SAFETY: QEMU's scoreboards may be used from every thread.
unsafe impl Send for Counters {}

impl Counters {
    /// `len` counters at 0. They live as long as QEMU.
    pub fn new(len: usize) -> Counters {
        // SAFETY: no precondition; QEMU aborts when it has no memory.
        let score = unsafe { qemu_plugin_scoreboard_new(len * size_of::<u64>()) };
        Counters { score, len }
    }

    fn entry(&self, index: usize) -> U64Entry {
        assert!(index < self.len);
        U64Entry {
            score: self.score,
            offset: index * size_of::<u64>(),
        }
    }

    /// The sum over all vCPUs.
    pub fn sum(&self, index: usize) -> u64 {
        // SAFETY: the entry lies within the scoreboard.
        unsafe { qemu_plugin_u64_sum(self.entry(index)) }
    }
}

/// An instruction while its block is being translated.
pub struct Translated {
    insn: *mut Insn,
}

impl Translated {
    /// The instructions of a block that QEMU hands to the translation callback.
    pub fn all(tb: *const Tb) -> impl Iterator<Item = Translated> {
        // SAFETY: `tb` is QEMU's, valid during the callback, and the index is below the count.
        let count = unsafe { qemu_plugin_tb_n_insns(tb) };
        (0..count).map(move |i| {
            // SAFETY: as above.
            let insn = unsafe { qemu_plugin_tb_get_insn(tb, i) };
            Translated { insn }
        })
    }

    /// Where it lies, a virtual address.
    pub fn address(&self) -> u64 {
        // SAFETY: `insn` is valid during the callback.
        unsafe { qemu_plugin_insn_vaddr(self.insn) }
    }

    /// Its bytes, at most 15 of them.
    pub fn bytes<'a>(&self, to: &'a mut [u8; 16]) -> &'a [u8] {
        // SAFETY: `to` holds as many bytes as it says.
        let len = unsafe { qemu_plugin_insn_data(self.insn, to.as_mut_ptr().cast(), to.len()) };
        &to[..len.min(16)]
    }

    /// Adds 1 to the counter whenever it executes.
    pub fn count(&self, counters: &Counters, index: usize) {
        let entry = counters.entry(index);
        // SAFETY: instruction and entry are valid.
        unsafe { qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(self.insn, ADD, entry, 1) }
    }

    /// Calls `call` before it executes.
    pub fn on_execution(&self, call: extern "C" fn(u32, *mut c_void)) {
        let user = std::ptr::null_mut();
        // SAFETY: the callback is a function, which lives as long as the plugin.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.insn, call, NO_REGS, user) }
    }

    /// Calls `call` after each of its writes to memory.
    pub fn on_write(&self, call: extern "C" fn(u32, u32, u64, *mut c_void)) {
        let user = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_mem_cb(self.insn, call, NO_REGS, WRITES, user) }
    }
}

/// A write to a device's registers.
pub struct IoWrite {
    /// Physical address.
    pub address: u64,
    /// Its low 32 bits.
    pub value: u32,
    /// QEMU's name of the region.
    pub region: String,
}

/// What a write callback's `info` and `vaddr` mean, if it went to a device.
pub fn io_write(info: u32, vaddr: u64) -> Option<IoWrite> {
    // SAFETY: `info` and `vaddr` are what the callback got; the answer is valid during it.
    unsafe {
        let address = qemu_plugin_get_hwaddr(info, vaddr);
        if address.is_null() || !qemu_plugin_hwaddr_is_io(address) {
            return None;
        }
        let name = qemu_plugin_hwaddr_device_name(address);
        let region = match name.is_null() {
            true => String::new(),
            false => CStr::from_ptr(name).to_string_lossy().into_owned(),
        };
        Some(IoWrite {
            address: qemu_plugin_hwaddr_phys_addr(address),
            value: qemu_plugin_mem_get_value(info).data[0] as u32,
            region,
        })
    }
}

/// QEMU loads the plugin: `argv` holds `argc` arguments `name=value`. Answers 0, or -1 to refuse.
#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_install(
    id: PluginId,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let arguments = (0..argc.max(0) as usize).map(|i| {
        // SAFETY: QEMU passes `argc` strings.
        unsafe { CStr::from_ptr(*argv.add(i)) }
            .to_string_lossy()
            .into_owned()
    });
    if let Err(why) = crate::install(arguments) {
        eprintln!("weir-count-plugin: {why}");
        return -1;
    }
    let user = std::ptr::null_mut();
    // SAFETY: the callbacks are functions, which live as long as the plugin.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, crate::translate, user);
        qemu_plugin_register_atexit_cb(id, crate::exit, user);
    }
    0
}
