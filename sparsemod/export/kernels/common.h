/* Fixed-point arithmetic that all kernels share. */
#ifndef SM_COMMON_H
#define SM_COMMON_H

#include <stdint.h>
#include <string.h>

/* A function of which the program is to have one copy, for the sake of flash. */
#if defined(__GNUC__)
#define SM_SHARED __attribute__((noinline, unused)) static
#else
#define SM_SHARED static
#endif

/* acc * multiplier / 2^31 * 2^shift, rounded twice as TensorFlow Lite does: the product's upper half, halves up,
   then the shift to the right, halves away from zero. acc has to be below 2^30 in size: sums of fewer than 30,000
   products are. What a shift to the left takes beyond that saturates. */
static inline int32_t sm_requantize(int32_t acc, int32_t multiplier, int shift) {
    int32_t high;
    if (shift > 0) {
        const int32_t limit = INT32_C(0x3FFFFFFF) >> shift;
        acc = (acc < -limit ? -limit : acc > limit ? limit : acc) * (INT32_C(1) << shift);
        shift = 0;
    }
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
    __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"((int32_t)((uint32_t)acc << 1)), "r"(multiplier));
#else
    high = (int32_t)(((int64_t)acc * multiplier + (INT32_C(1) << 30)) >> 31);
#endif
    return (high + (shift ? high >> 31 : 0) + (int32_t)((UINT32_C(1) << -shift) >> 1)) >> -shift;
}

static inline int32_t sm_clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

/* Four values of int8 at a time, in two words of two values of int16 each: those at 0 and 2, those at 1 and 3. */
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
#define SM_DSP 1

static inline uint32_t sm_word(const int8_t *x) {
    uint32_t word;
    memcpy(&word, x, 4);
    return word;
}

static inline uint32_t sm_even(uint32_t word) {
    uint32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(word));
    return pair;
}

static inline uint32_t sm_odd(uint32_t word) {
    uint32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
}

/* acc + both products. */
static inline int32_t sm_add_products(uint32_t a, uint32_t b, int32_t acc) {
    __asm__("smlad %0, %1, %2, %0" : "+r"(acc) : "r"(a), "r"(b));
    return acc;
}
#else
#define SM_DSP 0
#endif

#endif
