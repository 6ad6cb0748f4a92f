/* Fixed-point arithmetic that all kernels share. */
#ifndef SM_COMMON_H
#define SM_COMMON_H

#include <stdint.h>

/* acc * multiplier / 2^31 * 2^shift, rounded twice as TensorFlow Lite does: the product's upper half, halves up,
   then the shift to the right, halves away from zero. acc, shifted to the left by a positive shift, has to be below
   2^30 in size: sums of fewer than 30,000 products are. */
static inline int32_t sm_requantize(int32_t acc, int32_t multiplier, int shift) {
    const int left = shift > 0 ? shift : 0;
    const int right = left - shift;
    const int32_t half = (int32_t)((UINT32_C(1) << right) >> 1);
    const int32_t below = right ? -1 : 0;
    int32_t high;
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
    __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"((int32_t)((uint32_t)acc << (left + 1))), "r"(multiplier));
#else
    high = (int32_t)(((int64_t)(int32_t)((uint32_t)acc << left) * multiplier + (INT32_C(1) << 30)) >> 31);
#endif
    return (high + ((high >> 31) & below) + half) >> right;
}

static inline int32_t sm_clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

#endif
