// The C side of verilator-sys, in every model: what Rust calls, and where Verilator's hooks report to.
// Mirrored by src/raw.rs: change both, and ABI.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "weir_hooks.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

constexpr uint32_t WEIR_ABI = 2;

// One failed assertion, $error, $fatal or $stop, and the counters Rust reads without a call.
struct WeirStatus {
    uint64_t cycles;         // clock cycles since creation, skipped ones included
    uint64_t failures;       // failures since creation or the last clear
    uint64_t failure_cycle;  // `cycles` at the first failure
    const char* failure_text;
    const char* failure_file;
    uint64_t failure_line;
    const char* output;  // what $display and friends printed, not yet taken
    uint64_t output_len;
    uint8_t finished;  // $finish was executed
    uint8_t dead;      // a fatal error of the simulator: evaluation does nothing from here on
};

struct WeirPort {
    const char* name;
    uint32_t offset;  // bytes from the model's base address
    uint32_t bytes;
};

struct WeirApi {
    uint32_t abi;
    uint32_t ports;
    const WeirPort* port;
    void* (*create)(int32_t seed, uint8_t asserts);
    void (*destroy)(void*);
    void* (*base)(void*);
    WeirStatus* (*status)(void*);
    void (*eval)(void*);
    void (*tick)(void*, uint64_t n);
    void (*edge)(void*);  // a tick; no input has changed since the last eval
    void (*skip)(void*, uint64_t n);
    int32_t (*trace_open)(void*, const char* path);  // 0: done, 1: model built without trace, 2: cannot open
    void (*trace_close)(void*);
    void (*clear)(void*);  // forgets failures and output
};

// WEIR_RNG: Verilator has a class of random streams (not before about 5.020). Then each instance has its own, and
// its context's seed is set without Verilator's process-wide epoch, which would reseed other threads' models.
// Without it a stream is a thread's: only initial values are by the seed alone.
struct WeirContext final : VerilatedContext {
#if WEIR_RNG
    void seed(int32_t v) { m_s.m_randSeed = v; }
#else
    void seed(int32_t v) { randSeed(v); }
#endif
};

// What an instance owns beside its model. Verilator's hooks find the instance being evaluated by a thread-local.
struct WeirRun {
    WeirContext context;
#if WEIR_RNG
    VlRNG random{uint64_t{1}};
#endif
    WeirStatus status{};
    std::string output, failure_text, failure_file;

    void fail(const char* file, int line, const std::string& text);
};

// Thrown by vl_fatal out of an evaluation: after it the generated code could loop for ever.
struct WeirFatal {};

// While one lives, this thread's hooks and random numbers are the instance's.
struct WeirEnter {
    WeirRun& run;
    WeirRun* const outer;
    explicit WeirEnter(WeirRun& r);
    ~WeirEnter();
};
