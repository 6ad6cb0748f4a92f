/* From sums to stored outputs. */
#ifndef SM_STORE_H
#define SM_STORE_H

#include "common.h"

typedef struct {
    int32_t multiplier, shift, zero_point, low, high;
} sm_store_rule;

/* Outputs lie step apart. */
SM_SHARED void sm_store(const sm_store_rule *rule, const int32_t *acc, const int32_t *end, int8_t *output, int step) {
    const int32_t multiplier = rule->multiplier, shift = rule->shift;
    const int32_t zero_point = rule->zero_point, low = rule->low, high = rule->high;
    while (acc != end) {
        *output = (int8_t)sm_clamp(sm_requantize(*acc++, multiplier, shift) + zero_point, low, high);
        output += step;
    }
}

#endif
