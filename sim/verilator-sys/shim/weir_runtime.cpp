// Verilator's hooks: failures become a status that Rust reads, printed text a buffer. Compiled once, in every model.
#include "weir_shim.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

static thread_local WeirRun* weir_current = nullptr;

// Printed text beyond this is dropped; a model that prints each cycle must not eat the memory.
static constexpr size_t WEIR_OUTPUT_MAX = 1 << 20;

WeirEnter::WeirEnter(WeirRun& r) : run(r), outer(weir_current) {
    weir_current = &run;
    Verilated::threadContextp(&run.context);
#if WEIR_RNG
    std::swap(VlRNG::vl_thread_rng(), run.random);
#endif
}

WeirEnter::~WeirEnter() {
#if WEIR_RNG
    std::swap(VlRNG::vl_thread_rng(), run.random);
#endif
    weir_current = outer;
}

void WeirRun::fail(const char* file, int line, const std::string& text) {
    if (status.failures++ != 0) return;
    failure_text = text;
    failure_file = file ? file : "";
    status.failure_cycle = status.cycles;
    status.failure_line = line > 0 ? line : 0;
    status.failure_text = failure_text.c_str();
    status.failure_file = failure_file.c_str();
}

extern "C" int weir_printf(const char* format, ...) {
    va_list args;
    va_start(args, format);
    int n;
    if (WeirRun* const run = weir_current) {
        va_list copy;
        va_copy(copy, args);
        n = vsnprintf(nullptr, 0, format, copy);
        va_end(copy);
        std::string& out = run->output;
        if (n > 0 && out.size() < WEIR_OUTPUT_MAX) {
            const size_t at = out.size();
            out.resize(at + n + 1);
            vsnprintf(&out[at], n + 1, format, args);
            out.resize(at + n);
        }
        run->status.output = out.data();
        run->status.output_len = out.size();
    } else {
        n = vfprintf(stderr, format, args);
    }
    va_end(args);
    return n;
}

// A failed assertion, $error and $fatal print their line just before they stop: that line is the message.
static std::string weir_last_line(const std::string& out) {
    const size_t end = out.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const size_t start = out.rfind('\n', end);
    return out.substr(start == std::string::npos ? 0 : start + 1, end - (start == std::string::npos ? 0 : start + 1) + 1);
}

void vl_finish(const char*, int, const char*) {
    if (weir_current) weir_current->status.finished = 1;
}

void vl_stop(const char* file, int line, const char*) {
    if (!weir_current) return;
    const std::string text = weir_last_line(weir_current->output);
    const size_t at = text.find("%Error: ");
    const size_t fatal = text.find("%Fatal: ");
    if (at != std::string::npos) {
        weir_current->fail(file, line, text.substr(at + 8));
    } else if (fatal != std::string::npos) {
        weir_current->fail(file, line, text.substr(fatal + 8));
    } else {
        weir_current->fail(file, line, "Verilog $stop");
    }
}

void vl_fatal(const char* file, int line, const char*, const char* text) {
    if (weir_current) {
        weir_current->fail(file, line, text);
        weir_current->status.dead = 1;
    }
    throw WeirFatal{};
}
