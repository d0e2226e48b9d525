/* base/inline.h - INLINE: parts of kernels that become one with their caller, whose constants then
 * choose among their branches. With sanitizers the compiler decides: each copy would be instrumented
 * before its dead branches go, and one file took ten minutes. */
#ifndef LUCE_BASE_INLINE_H
#define LUCE_BASE_INLINE_H

#ifdef LUCE_SANITIZED
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#endif
