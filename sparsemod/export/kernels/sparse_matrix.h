/* Matrices with few weights times vectors: fully connected layers and the gates of recurrent ones. */
#ifndef SM_SPARSE_MATRIX_H
#define SM_SPARSE_MATRIX_H

#include "common.h"
#include "sparse_bits.h"

/* The product of the next n weights and x; the walk goes on behind them. */
SM_SHARED int32_t sm_sparse_dot(sm_sparse *walk, const int8_t *x, uint32_t n) {
    const uint8_t *bits = walk->bits;
    const int8_t *values = walk->values;
    uint32_t at = walk->at;
    int32_t acc = 0;
    walk->at = at + n;
    for (;;) {
        uint32_t word, chunk;
        if (n >= 32 && (at & 7) == 0) {
            chunk = 32;
            word = SM_LOADED(sm_sparse_word(bits + (at >> 3)));
        } else if (n > 0) {
            chunk = sm_sparse_chunk(at, n);
            word = sm_sparse_bits(bits, at, chunk);
        } else {
            break;
        }
        while (word) {
            const uint32_t first = SM_FIRST(word);
            word = SM_DROP(word, first);
            acc += x[first] * *values++;
        }
        x += chunk;
        at += chunk;
        n -= chunk;
    }
    walk->values = values;
    return acc;
}

/* output = rescaled(bias + weights * input), weights of (rows, columns). The input's zero point has to be folded
   into the bias: bias[row] - zero_point * (sum of the row's weights). per_row is 1 where multiplier and shift
   have an entry a row, and 0 where they have one in all. */
static inline void sm_sparse_fully_connected(const uint8_t *weights, int rows, int columns, const int32_t *bias,
                                             const int32_t *multiplier, const int8_t *shift, int per_row,
                                             int output_zero_point, int low, int high, const int8_t *input,
                                             int8_t *output) {
    sm_sparse walk = sm_sparse_begin(weights, (uint32_t)(rows * columns));
    for (int row = 0; row < rows; ++row) {
        const int32_t acc = bias[row] + sm_sparse_dot(&walk, input, (uint32_t)columns);
        const int at = row * per_row;
        output[row] = (int8_t)sm_clamp(sm_requantize(acc, multiplier[at], shift[at]) + output_zero_point, low, high);
    }
}

/* The part of a recurrent layer's gate that comes from one matrix, in 16 bits: rescaled(bias + weights * input), added to what
   gate holds where add is 1. The zero point is folded into the bias as above. */
static inline void sm_sparse_gate(const uint8_t *weights, int rows, int columns, const int32_t *bias,
                                  int32_t multiplier, int shift, int add, const int8_t *input, int16_t *gate) {
    sm_sparse walk = sm_sparse_begin(weights, (uint32_t)(rows * columns));
    for (int row = 0; row < rows; ++row) {
        const int32_t acc = bias[row] + sm_sparse_dot(&walk, input, (uint32_t)columns);
        int32_t part = sm_clamp(sm_requantize(acc, multiplier, shift), -32768, 32767);
        if (add) {
            part = sm_clamp(part + gate[row], -32768, 32767);
        }
        gate[row] = (int16_t)part;
    }
}

#endif
