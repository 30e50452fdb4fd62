// Included before every Verilator source: sends its printing and its stops to weir_runtime.cpp.
#pragma once
extern "C" int weir_printf(const char* format, ...);
#define VL_PRINTF weir_printf
#define VL_USER_FINISH
#define VL_USER_STOP
#define VL_USER_FATAL
