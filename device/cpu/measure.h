/* device/cpu/measure.h - probes of the instruction sets: see measure.c. */
#ifndef LUCE_DEVICE_CPU_MEASURE_H
#define LUCE_DEVICE_CPU_MEASURE_H

#include <stddef.h>
#include <stdint.h>

enum { PROBE_VECTORS = 12 };            /* independent chains: more than latency times ports */
enum { PROBE_F32_OPS = PROBE_VECTORS * 16 * 2, PROBE_BF16_OPS = PROBE_VECTORS * 32 * 2,
       PROBE_INT8_OPS = PROBE_VECTORS * 64 * 2, PROBE_INT8_OPS_AMX = 6 * 16 * 16 * 64 * 2 };

/* Arithmetic of PROBE_*_OPS operations a round, and streaming reads of `bytes` (a multiple of 1024). */
void probe_f32_portable(long rounds);
void probe_f32_avx2(long rounds);
void probe_int8_avx2(long rounds);
void probe_f32_avx512(long rounds);
void probe_bf16_avx512(long rounds);
void probe_int8_avx512(long rounds);
void probe_int8_amx(long rounds);
void read_portable(const uint8_t *from, size_t bytes);
void read_avx2(const uint8_t *from, size_t bytes);
void read_plain_avx512(const uint8_t *from, size_t bytes);
void read_ahead_avx512(const uint8_t *from, size_t bytes);
void read_streams_avx512(const uint8_t *from, size_t bytes);

/* Keeps a result alive. */
extern volatile int measure_sink;

#endif
