/* Pairs of 16-bit numbers in a word, multiplied at once where the core has the instructions. */
#ifndef SM_SIMD_H
#define SM_SIMD_H

#include <stdint.h>
#include <string.h>

/* For kernels whose sizes are literals at the call, so that each layer has code of its own. */
#if defined(__GNUC__)
#define SM_INLINE static inline __attribute__((always_inline))
#else
#define SM_INLINE static inline
#endif

static inline int32_t sm_packed(int32_t low, int32_t high) {
    return (int32_t)((uint32_t)(low & 0xFFFF) | (uint32_t)high << 16);
}

#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
#define SM_SIMD 1

static inline uint32_t sm_word(const void *x) {
    uint32_t word;
    memcpy(&word, x, 4);
    return word;
}

/* Bytes 0 and 2 of a word, or bytes 1 and 3, as signed halves of another. */
static inline int32_t sm_even(uint32_t word) {
    int32_t halves;
    __asm__("sxtb16 %0, %1" : "=r"(halves) : "r"(word));
    return halves;
}

static inline int32_t sm_odd(uint32_t word) {
    int32_t halves;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(halves) : "r"(word));
    return halves;
}

/* Adds the products of both halves. */
#define SM_ADD_BOTH(acc, x, y) __asm__("smlad %0, %1, %2, %0" : "+r"(acc) : "r"(x), "r"(y))
#define SM_ADD_PAIR(acc, x, packed) SM_ADD_BOTH(acc, sm_word(x), packed)
#else
#define SM_ADD_PAIR(acc, x, packed) ((acc) += (x)[0] * (int16_t)(packed) + (x)[1] * ((packed) >> 16))
#endif

#endif
