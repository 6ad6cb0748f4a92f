/* Softmax and its logarithm, in gemmlowp's fixed-point arithmetic, which TensorFlow Lite uses. */
#ifndef SM_SOFTMAX_H
#define SM_SOFTMAX_H

#include "common.h"

/* Product of two Q0.31 numbers, rounded to the nearest, halves up. */
static inline int32_t sm_high_multiply(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (INT32_C(1) << 30)) >> 31);
}

/* x / 2^exponent, halves away from zero. */
static inline int32_t sm_shift_right(int64_t x, int exponent) {
    return (int32_t)((x + (exponent ? x >> 63 : 0) + ((INT64_C(1) << exponent) >> 1)) >> exponent);
}

/* x * 2^exponent, saturated. */
static inline int32_t sm_shift_left(int32_t x, int exponent) {
    const int64_t y = (int64_t)x * (INT64_C(1) << exponent);
    return y < INT32_MIN ? INT32_MIN : y > INT32_MAX ? INT32_MAX : (int32_t)y;
}

/* acc * multiplier / 2^31 * 2^shift, for any acc that fits when it is shifted to the left. */
static inline int32_t sm_rescaled(int32_t acc, int32_t multiplier, int shift) {
    const int32_t shifted = shift > 0 ? acc * (INT32_C(1) << shift) : acc;
    return sm_shift_right(sm_high_multiply(shifted, multiplier), shift > 0 ? 0 : -shift);
}

/* exp of a non-positive number with 5 bits before the point, as Q0.31: a polynomial on a quarter, and a factor for
   each bit above. */
SM_SHARED int32_t sm_exp(int32_t x) {
    const int32_t factors[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t quarter = INT32_C(1) << 24, eighth = 1895147668;
    const int32_t within = (x & (quarter - 1)) - quarter;
    const int32_t y = within * 32 + (INT32_C(1) << 28);
    const int32_t y2 = sm_high_multiply(y, y), y3 = sm_high_multiply(y2, y), y4 = sm_high_multiply(y2, y2);
    const int32_t tail = sm_shift_right(sm_high_multiply(sm_shift_right(y4, 2) + y3, 715827883) + y2, 1);
    const int32_t above = within - x;
    int32_t result = eighth + sm_high_multiply(y + tail, eighth);
    for (int i = 0; i < 7; ++i) {
        if (above & (INT32_C(1) << (24 + i))) {
            result = sm_high_multiply(result, factors[i]);
        }
    }
    return x == 0 ? INT32_MAX : result;
}

/* 1 / (1 + x) for x in [0, 1), both Q0.31. */
SM_SHARED int32_t sm_one_over_one_plus(int32_t x) {
    const int32_t half = (x >> 1) + (INT32_C(1) << 30);
    int32_t y = 1515870810 + sm_high_multiply(half, -1010580540);
    for (int i = 0; i < 3; ++i) {
        const int32_t rest = (INT32_C(1) << 29) - sm_high_multiply(half, y);
        y += sm_shift_left(sm_high_multiply(y, rest), 2);
    }
    return sm_shift_left(y, 1);
}

static inline int sm_leading_zeros(uint32_t x) {
    int n = 0;
    for (; !(x & UINT32_C(0x80000000)); x <<= 1) {
        ++n;
    }
    return n;
}

static inline int32_t sm_largest(int n, const int8_t *x) {
    int32_t largest = -128;
    for (int i = 0; i < n; ++i) {
        largest = x[i] > largest ? x[i] : largest;
    }
    return largest;
}

/* Sum of exponentials of differences to the largest value, with 12 bits before the point. Differences below `lowest` do not
   count. */
static inline int32_t sm_sum_of_exp(int n, int32_t multiplier, int shift, int lowest, int32_t largest,
                                    const int8_t *x) {
    int32_t total = 0;
    for (int i = 0; i < n; ++i) {
        if (x[i] - largest >= lowest) {
            total += sm_shift_right(sm_exp(sm_rescaled(x[i] - largest, multiplier, shift)), 12);
        }
    }
    return total;
}

SM_SHARED void sm_softmax(int rows, int n, int32_t multiplier, int shift, int lowest, const int8_t *x,
                          int8_t *output) {
    for (; rows > 0; --rows, x += n, output += n) {
        const int32_t largest = sm_largest(n, x);
        const uint32_t total = (uint32_t)sm_sum_of_exp(n, multiplier, shift, lowest, largest, x);
        const int headroom = sm_leading_zeros(total);
        const int32_t reciprocal = sm_one_over_one_plus((int32_t)((total << headroom) - UINT32_C(0x80000000)));
        for (int i = 0; i < n; ++i) {
            int32_t y = 0;
            if (x[i] - largest >= lowest) {
                const int32_t e = sm_exp(sm_rescaled(x[i] - largest, multiplier, shift));
                y = sm_shift_right(sm_high_multiply(e, reciprocal), 35 - headroom);
            }
            output[i] = (int8_t)sm_clamp(y - 128, -128, 127);
        }
    }
}

/* Natural logarithm, with 5 bits before the point, of a number from 1 on with 12: a power of two times one near the
   fourth root of a half, of whose logarithm a quotient of polynomials is taken. */
SM_SHARED int32_t sm_log_of_sum(int32_t x) {
    const int32_t half_root = 1518500250, root = 1805811301;
    const int headroom = sm_leading_zeros((uint32_t)x);
    const int lower_headroom = sm_leading_zeros((uint32_t)sm_high_multiply(x, half_root)) - 1;
    const int32_t near = sm_shift_left(sm_high_multiply(sm_shift_left(x, headroom - 1), half_root), 1);
    const int32_t lower = sm_shift_left(x, lower_headroom);
    const int32_t r = near < lower ? near : lower;
    const int32_t power_a = (12 - headroom) * (INT32_C(1) << 25) + (INT32_C(1) << 23);
    const int32_t power_b = (12 - lower_headroom) * (INT32_C(1) << 25) - (INT32_C(1) << 23);
    const int32_t power = power_a > power_b ? power_a : power_b;
    const int32_t q = 2 * (r - root), square = sm_high_multiply(q, q);
    const int32_t numerator = sm_high_multiply(q, r) + sm_high_multiply(sm_high_multiply(q, square), 117049297);
    const int32_t inner = 1057819769 + q + sm_high_multiply(square, 127690142);
    const int32_t denominator = sm_high_multiply((int32_t)(((int64_t)r + root + 1) / 2), inner) +
                                sm_high_multiply(q, 638450708);
    const int32_t fraction = sm_high_multiply(sm_shift_right(numerator, 6), sm_one_over_one_plus(denominator));
    return sm_shift_left(sm_high_multiply(power, 1488522236) + fraction, 1);
}

SM_SHARED void sm_log_softmax(int rows, int n, int32_t multiplier, int shift, int32_t back_multiplier, int back_shift,
                              int lowest, const int8_t *x, int8_t *output) {
    for (; rows > 0; --rows, x += n, output += n) {
        const int32_t largest = sm_largest(n, x);
        const int32_t log = sm_log_of_sum(sm_sum_of_exp(n, multiplier, shift, lowest, largest, x));
        int32_t least = sm_rescaled((int32_t)(log - INT64_C(0x80000000)), back_multiplier, back_shift);
        least = least < lowest - 1 ? lowest - 1 : least;
        for (int i = 0; i < n; ++i) {
            int32_t y = -128;
            if (x[i] - largest > least) {
                const int32_t scaled = sm_rescaled(x[i] - largest, multiplier, shift);
                y = sm_clamp(sm_shift_right((int64_t)scaled - log, 22) + 127, -128, 127);
            }
            output[i] = (int8_t)y;
        }
    }
}

#endif
