/* base/rng.h - random numbers by counter: a number depends on (seed, stream, counter) and on
 * nothing else, so that a draw can be repeated, skipped or computed on another device.
 * Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
 * Not for secrets. Threads: any. */
#ifndef LUCE_BASE_RNG_H
#define LUCE_BASE_RNG_H

#include <stdint.h>

/* The generator of the paper: 128 bits of counter and 64 of key give 128 bits. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* 64 bits: words 0 (low) and 1 (high) for key = seed and counter = (counter, stream), each with its
 * low word first. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter);
/* In [0, 1): the upper 53 bits of rng_u64. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
/* Mean 0, deviation 1 (Box and Muller, from all four words). */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

#endif
