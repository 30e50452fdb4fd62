//! The only unsafe code: the loaded shared object, and the memory of a model's ports.
//!
//! Mirrors `shim/weir_shim.h`. Construction, the first evaluation and destruction of all models hold one lock:
//! Verilator's runtime is free of races only then.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::Entry;
use crate::{AssertError, Error};

const ABI: u32 = 2;

#[repr(C)]
struct Status {
    cycles: u64,
    failures: u64,
    failure_cycle: u64,
    failure_text: *const c_char,
    failure_file: *const c_char,
    failure_line: u64,
    output: *const c_char,
    output_len: u64,
    finished: u8,
    dead: u8,
}

#[repr(C)]
struct RawPort {
    name: *const c_char,
    offset: u32,
    bytes: u32,
}

#[repr(C)]
struct Api {
    abi: u32,
    ports: u32,
    port: *const RawPort,
    create: unsafe extern "C" fn(i32, u8) -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    base: unsafe extern "C" fn(*mut c_void) -> *mut u8,
    status: unsafe extern "C" fn(*mut c_void) -> *const Status,
    eval: unsafe extern "C" fn(*mut c_void),
    tick: unsafe extern "C" fn(*mut c_void, u64),
    edge: unsafe extern "C" fn(*mut c_void),
    skip: unsafe extern "C" fn(*mut c_void, u64),
    trace_open: unsafe extern "C" fn(*mut c_void, *const c_char) -> i32,
    trace_close: unsafe extern "C" fn(*mut c_void),
    clear: unsafe extern "C" fn(*mut c_void),
}

static LIFE: Mutex<()> = Mutex::new(());

/// A loaded model. The field order is the order of dropping: unload, then give the build back to the cache.
pub(crate) struct Library {
    api: *const Api,
    _object: libloading::Library,
    _entry: Entry,
}

// SAFETY: `api` points to constant data of the object, which lives as long as the Library and is never written.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the shared object at `path`, built by this crate, kept in the cache by `entry`.
    pub(crate) fn load(path: &Path, entry: Entry) -> Result<Library, Error> {
        let error = |problem: String| Error::Load {
            path: path.into(),
            problem,
        };
        // SAFETY: the object was built from our shim and Verilator's sources under a key that names both; its static
        // constructors are Verilator's own, run under the lock that guards its global state.
        let (object, api) = unsafe {
            let _life = LIFE.lock().unwrap_or_else(PoisonError::into_inner);
            let object = libloading::Library::new(path).map_err(|e| error(e.to_string()))?;
            let get = object
                .get::<unsafe extern "C" fn() -> *const Api>(b"weir_api\0")
                .map_err(|e| error(e.to_string()))?;
            let api = get();
            (object, api)
        };
        let library = Library {
            api,
            _object: object,
            _entry: entry,
        };
        match library.api().abi {
            ABI => Ok(library),
            abi => Err(error(format!(
                "interface {abi}, not {ABI}: remove it from the cache"
            ))),
        }
    }

    fn api(&self) -> &Api {
        // SAFETY: weir_api returns a pointer to a constant; the object is loaded as long as self.
        unsafe { &*self.api }
    }

    /// Offset in bytes and size in bytes of each port, in the port list's order.
    pub(crate) fn places(&self) -> Vec<(u32, u32)> {
        let api = self.api();
        // SAFETY: the table has `ports` elements.
        let ports = unsafe { std::slice::from_raw_parts(api.port, api.ports as usize) };
        ports.iter().map(|p| (p.offset, p.bytes)).collect()
    }
}

/// The model gave no instance, or one without a word of why.
fn unknown_failure() -> AssertError {
    AssertError {
        message: "unknown failure".into(),
        file: String::new(),
        line: 0,
        cycle: 0,
        failures: 1,
    }
}

/// An instance of a model.
pub(crate) struct Instance {
    library: Arc<Library>,
    this: NonNull<c_void>,
    base: *mut u8,
    status: *const Status,
    /// No input was written since the last evaluation with the clock low.
    settled: bool,
}

// SAFETY: an instance has its own context and all its state behind `this`; Verilator's thread-local state is set
// anew at each entry (WeirEnter). It is not Sync: calls from one thread at a time.
unsafe impl Send for Instance {}

impl Instance {
    /// Constructs an instance; `seed` is not 0. Gives the failure if the first evaluation died.
    pub(crate) fn new(
        library: Arc<Library>,
        seed: i32,
        asserts: bool,
    ) -> Result<Instance, AssertError> {
        let api = library.api();
        let _life = LIFE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: create has no precondition.
        let this = NonNull::new(unsafe { (api.create)(seed, u8::from(asserts)) });
        let Some(this) = this else {
            return Err(unknown_failure());
        };
        // SAFETY: base and status take what create has returned.
        let (base, status) = unsafe { ((api.base)(this.as_ptr()), (api.status)(this.as_ptr())) };
        drop(_life);
        let instance = Instance {
            library,
            this,
            base,
            status,
            settled: false,
        };
        match instance.status().dead {
            0 => Ok(instance),
            _ => Err(instance.failure().unwrap_or_else(unknown_failure)),
        }
    }

    fn status(&self) -> &Status {
        // SAFETY: status points into the instance; it changes only in calls that take &mut self.
        unsafe { &*self.status }
    }

    pub(crate) fn eval(&mut self) {
        // SAFETY: `this` is a live instance and &mut self makes the call the only one.
        unsafe { (self.library.api().eval)(self.this.as_ptr()) }
        self.settled = true;
    }

    pub(crate) fn tick(&mut self, cycles: u64) {
        let settled = std::mem::take(&mut self.settled);
        // SAFETY: as eval.
        unsafe {
            match settled && cycles == 1 {
                true => (self.library.api().edge)(self.this.as_ptr()),
                false => (self.library.api().tick)(self.this.as_ptr(), cycles),
            }
        }
    }

    pub(crate) fn skip(&mut self, cycles: u64) {
        // SAFETY: as eval.
        unsafe { (self.library.api().skip)(self.this.as_ptr(), cycles) }
    }

    /// 0 done, 1 built without tracing, 2 cannot be opened.
    pub(crate) fn trace_open(&mut self, path: &CString) -> i32 {
        // SAFETY: as eval; the path is copied.
        unsafe { (self.library.api().trace_open)(self.this.as_ptr(), path.as_ptr()) }
    }

    pub(crate) fn trace_close(&mut self) {
        // SAFETY: as eval.
        unsafe { (self.library.api().trace_close)(self.this.as_ptr()) }
    }

    pub(crate) fn clear(&mut self) {
        // SAFETY: as eval.
        unsafe { (self.library.api().clear)(self.this.as_ptr()) }
    }

    pub(crate) fn cycles(&self) -> u64 {
        self.status().cycles
    }

    pub(crate) fn finished(&self) -> bool {
        self.status().finished != 0
    }

    pub(crate) fn failed(&self) -> bool {
        self.status().failures != 0
    }

    /// The first failure since the last clear.
    pub(crate) fn failure(&self) -> Option<AssertError> {
        let status = self.status();
        if status.failures == 0 {
            return None;
        }
        let text = |p: *const c_char| match p.is_null() {
            true => String::new(),
            // SAFETY: a NUL-terminated string of the instance, changed only in calls that take &mut self.
            false => unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned(),
        };
        Some(AssertError {
            message: text(status.failure_text).trim_end().into(),
            file: text(status.failure_file),
            line: status.failure_line as u32,
            cycle: status.failure_cycle,
            failures: status.failures,
        })
    }

    /// What the model printed since the last clear.
    pub(crate) fn output(&self) -> String {
        let status = self.status();
        if status.output_len == 0 {
            return String::new();
        }
        // SAFETY: output points to output_len bytes of the instance.
        let bytes = unsafe {
            std::slice::from_raw_parts(status.output.cast::<u8>(), status.output_len as usize)
        };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The value of a port, or of a memory's word. `offset` and `width` (1 to 64) are a place of this model, as its tables say.
    pub(crate) fn read(&self, offset: u32, width: u16) -> u64 {
        // SAFETY: Verilator keeps a port or a word of 1..=8, 9..=16, 17..=32, 33..=64 bits in an aligned u8, u16, u32, u64 at
        // base + offset; it changes only in calls that take &mut self.
        unsafe {
            let p = self.base.add(offset as usize);
            match width {
                0..=8 => u64::from(p.read()),
                9..=16 => u64::from(p.cast::<u16>().read()),
                17..=32 => u64::from(p.cast::<u32>().read()),
                _ => p.cast::<u64>().read(),
            }
        }
    }

    /// Sets the port's value, which fits `width` (1 to 64); `offset` as for [`Instance::read`].
    pub(crate) fn write(&mut self, offset: u32, width: u16, value: u64) {
        self.settled = false;
        // SAFETY: as read, and &mut self makes the write the only access.
        unsafe {
            let p = self.base.add(offset as usize);
            match width {
                0..=8 => p.write(value as u8),
                9..=16 => p.cast::<u16>().write(value as u16),
                17..=32 => p.cast::<u32>().write(value as u32),
                _ => p.cast::<u64>().write(value),
            }
        }
    }

    /// The words of a port wider than 64 bits, least significant first: `words` of 32 bits.
    pub(crate) fn words(&self, offset: u32, words: usize) -> &[u32] {
        // SAFETY: Verilator keeps a wide port as ceil(width / 32) u32 words at base + offset.
        unsafe { std::slice::from_raw_parts(self.base.add(offset as usize).cast(), words) }
    }

    /// As [`Instance::words`], to write.
    pub(crate) fn words_mut(&mut self, offset: u32, words: usize) -> &mut [u32] {
        self.settled = false;
        // SAFETY: as words, and &mut self makes the access the only one.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(offset as usize).cast(), words) }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _life = LIFE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: created by create, destroyed once.
        unsafe { (self.library.api().destroy)(self.this.as_ptr()) }
    }
}
