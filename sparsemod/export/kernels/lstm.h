/* The LSTM of TensorFlow Lite: gates and cell state in 16 bits. */
#ifndef SM_LSTM_H
#define SM_LSTM_H

#include "matrix.h"

/* The part of a gate that comes from one matrix: rescaled(bias + weights * input), added to what gate holds where add
   is 1. */
SM_SHARED void sm_gate(int rows, int columns, const int8_t *weights, const int32_t *bias, int32_t multiplier,
                       int shift, int add, const int8_t *input, int16_t *gate) {
    for (int row = 0; row < rows; row += 2) {
        /* Of an odd number of rows the last one is multiplied on its own, twice. */
        const int n = row + 1 < rows ? 2 : 1;
        int32_t acc[2] = {bias[row], bias[row + n - 1]};
        sm_two_rows(weights + row * columns, weights + (row + n - 1) * columns, input, columns, acc);
        for (int i = 0; i < n; ++i) {
            int32_t part = sm_clamp(sm_requantize(acc[i], multiplier, shift), -32768, 32767);
            if (add) {
                part = sm_clamp(part + gate[row + i], -32768, 32767);
            }
            gate[row + i] = (int16_t)part;
        }
    }
}

/* Logistic function with 15 bits below the point of a number with 12. The table holds sigmoid(i / 24), i = 0 to 255,
   with 16. */
static inline int32_t sm_logistic_16(const uint16_t *table, int32_t x) {
    const int32_t scaled = x * 3, size = scaled < 0 ? -scaled : scaled, at = size >> 9;
    int32_t y = INT32_C(0x7FFF) << 10;
    if (at < 255) {
        y = ((int32_t)table[at] << 9) + (size & 511) * ((int32_t)table[at + 1] - (int32_t)table[at]);
    }
    return (scaled >= 0 ? y + 512 : (INT32_C(1) << 25) - y + 511) >> 10;
}

/* tanh with 15 bits below the point of a number with 12 - shift. */
static inline int32_t sm_tanh_16(const uint16_t *table, int32_t x, int shift) {
    const int32_t scaled = shift >= 0 ? x * 3 * (INT32_C(1) << shift) : (x * 3 + (INT32_C(1) << (-shift - 1))) >> -shift;
    const int32_t size = scaled < 0 ? -scaled : scaled, at = size >> 8, half = INT32_C(1) << 23;
    int32_t y = INT32_C(0xFFFF) << 8;
    if (at < 255) {
        y = ((int32_t)table[at] << 8) + (size & 255) * ((int32_t)table[at + 1] - (int32_t)table[at]);
    }
    return (scaled >= 0 ? y - half + 128 : half - y + 127) >> 8;
}

/* A step: gates holds those of input, forget, cell and output one after the other, then the cell state. shift is that of
   the cell state's tanh. */
SM_SHARED void sm_lstm_step(int size, const uint16_t *table, int16_t *gates, int32_t forget, int forget_shift,
                            int32_t enter, int enter_shift, int32_t emit, int emit_shift, int shift, int zero_point,
                            int8_t *output) {
    int16_t *const cell = gates + 4 * size;
    for (int i = 0; i < size; ++i) {
        const int32_t entering = sm_logistic_16(table, gates[i]), kept = sm_logistic_16(table, gates[size + i]);
        const int32_t emitting = sm_logistic_16(table, gates[3 * size + i]);
        const int32_t fresh = entering * sm_tanh_16(table, gates[2 * size + i], 0);
        int32_t state = sm_clamp(sm_requantize(kept * cell[i], forget, forget_shift), -32768, 32767);
        state += sm_clamp(sm_requantize(fresh, enter, enter_shift), -32768, 32767);
        state = sm_clamp(state, -32768, 32767);
        cell[i] = (int16_t)state;
        state = sm_requantize(sm_tanh_16(table, state, shift) * emitting, emit, emit_shift) + zero_point;
        output[i] = (int8_t)sm_clamp(state, -128, 127);
    }
}

#endif
