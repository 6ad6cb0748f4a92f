/* What is computed element by element. n elements; operands whose step is 0 stay the same. */
#ifndef SM_ELEMENTS_H
#define SM_ELEMENTS_H

#include "common.h"

/* x + sign * y: both shifted up 20 bits and brought to one scale, and the sum to that of the output. */
static inline void sm_add(int n, int step_x, int step_y, int sign, int zero_x, int32_t multiplier_x, int shift_x,
                          int zero_y, int32_t multiplier_y, int shift_y, int32_t multiplier, int shift,
                          int zero_point, int low, int high, const int8_t *x, const int8_t *y, int8_t *output) {
    for (int8_t *const end = output + n; output != end; x += step_x, y += step_y) {
        const int32_t left = sm_requantize((*x - zero_x) * (INT32_C(1) << 20), multiplier_x, shift_x);
        const int32_t right = sm_requantize((*y - zero_y) * (INT32_C(1) << 20), multiplier_y, shift_y);
        const int32_t total = sm_requantize(left + sign * right, multiplier, shift);
        *output++ = (int8_t)sm_clamp(total + zero_point, low, high);
    }
}

static inline void sm_mul(int n, int step_x, int step_y, int zero_x, int zero_y, int32_t multiplier, int shift,
                          int zero_point, int low, int high, const int8_t *x, const int8_t *y, int8_t *output) {
    for (int8_t *const end = output + n; output != end; x += step_x, y += step_y) {
        const int32_t product = sm_requantize((*x - zero_x) * (*y - zero_y), multiplier, shift);
        *output++ = (int8_t)sm_clamp(product + zero_point, low, high);
    }
}

static inline void sm_maximum(int n, int step_x, int step_y, const int8_t *x, const int8_t *y, int8_t *output) {
    for (int8_t *const end = output + n; output != end; x += step_x, y += step_y) {
        *output++ = *x > *y ? *x : *y;
    }
}

static inline void sm_minimum(int n, int step_x, int step_y, const int8_t *x, const int8_t *y, int8_t *output) {
    for (int8_t *const end = output + n; output != end; x += step_x, y += step_y) {
        *output++ = *x < *y ? *x : *y;
    }
}

/* The entries of a table over the values -128 to 127. */
SM_SHARED void sm_look_up(int n, const int8_t *table, const int8_t *x, int8_t *output) {
    for (int8_t *const end = output + n; output != end;) {
        *output++ = table[*x++ + 128];
    }
}

#endif
