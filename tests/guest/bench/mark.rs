//! Runs in the guest: executes the no-op that begins a section of the counting (`../plugin/src/decode.rs`, `MARK`). Made by rustc alone.

#[cfg(target_arch = "x86_64")]
fn main() {
    // SAFETY: a NOP with a memory operand, which is not accessed: nopl 0x72696557(%rax,%rax), "Weir".
    unsafe { std::arch::asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x57, 0x65, 0x69, 0x72") };
}
