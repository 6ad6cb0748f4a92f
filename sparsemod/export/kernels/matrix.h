/* Matrices of int8 weights times columns of int8 inputs: fully connected layers, and what convolutions are made of.
   The input's zero point is folded into the bias: bias[row] - zero_point * (sum of the row's weights). */
#ifndef SM_MATRIX_H
#define SM_MATRIX_H

#include "common.h"

typedef struct {
    int rows, columns;
    const int8_t *weights;
    const int32_t *bias, *multiplier;
    const int8_t *shift;
    int per_row; /* 1: multiplier and shift have an entry a row; 0: one in all */
    int zero_point, low, high;
} sm_matrix;

static inline int8_t sm_finished(const sm_matrix *m, int32_t acc, int row) {
    const int at = row * m->per_row;
    const int32_t y = sm_requantize(acc, m->multiplier[at], m->shift[at]);
    return (int8_t)sm_clamp(y + m->zero_point, m->low, m->high);
}

/* Products of two rows and two columns. */
static inline void sm_two_by_two(const int8_t *v, const int8_t *w, const int8_t *x, const int8_t *z, int n,
                                 int32_t *acc) {
    int32_t a = acc[0], b = acc[1], c = acc[2], d = acc[3];
    const int8_t *const end = v + n;
#if SM_DSP
    for (const int8_t *const whole = v + (n & ~3); v != whole; v += 4, w += 4, x += 4, z += 4) {
        const uint32_t left = sm_word(x), right = sm_word(z), first = sm_word(v), second = sm_word(w);
        const uint32_t left_even = sm_even(left), left_odd = sm_odd(left);
        const uint32_t right_even = sm_even(right), right_odd = sm_odd(right);
        uint32_t even = sm_even(first), odd = sm_odd(first);
        a = sm_add_products(even, left_even, a);
        a = sm_add_products(odd, left_odd, a);
        b = sm_add_products(even, right_even, b);
        b = sm_add_products(odd, right_odd, b);
        even = sm_even(second);
        odd = sm_odd(second);
        c = sm_add_products(even, left_even, c);
        c = sm_add_products(odd, left_odd, c);
        d = sm_add_products(even, right_even, d);
        d = sm_add_products(odd, right_odd, d);
    }
#endif
    while (v != end) {
        const int32_t first = *v++, second = *w++, left = *x++, right = *z++;
        a += first * left;
        b += first * right;
        c += second * left;
        d += second * right;
    }
    acc[0] = a;
    acc[1] = b;
    acc[2] = c;
    acc[3] = d;
}

/* One row's outputs of two columns. */
SM_SHARED void sm_finish_two(const sm_matrix *m, int row, int32_t acc, int32_t other, int8_t *y, int8_t *u) {
    const int at = row * m->per_row;
    const int32_t multiplier = m->multiplier[at], low = m->low, high = m->high, zero_point = m->zero_point;
    const int shift = m->shift[at];
    const int32_t first = sm_clamp(sm_requantize(acc, multiplier, shift) + zero_point, low, high);
    const int32_t second = sm_clamp(sm_requantize(other, multiplier, shift) + zero_point, low, high);
    y[row] = (int8_t)first;
    u[row] = (int8_t)second;
}

/* Two columns at a time, which may be the same one. */
SM_SHARED void sm_two_columns(const sm_matrix *m, const int8_t *x, const int8_t *z, int8_t *y, int8_t *u) {
    const int n = m->columns, rows = m->rows;
    const int8_t *w = m->weights;
    const int32_t *bias = m->bias;
    for (int row = 0; row < rows; row += 2, w += 2 * n) {
        const int two = row + 1 < rows;
        int32_t acc[4] = {bias[row], bias[row], two ? bias[row + 1] : 0, 0};
        acc[3] = acc[2];
        sm_two_by_two(w, two ? w + n : w, x, z, n, acc);
        sm_finish_two(m, row, acc[0], acc[1], y, u);
        if (two) {
            sm_finish_two(m, row + 1, acc[2], acc[3], y, u);
        }
    }
}

/* Adds the products of two rows, which may be the same one, and a column. */
SM_SHARED void sm_two_rows(const int8_t *v, const int8_t *w, const int8_t *x, int n, int32_t *acc) {
    int32_t a = acc[0], b = acc[1];
    const int8_t *const end = v + n;
#if SM_DSP
    for (const int8_t *const whole = v + (n & ~3); v != whole; v += 4, w += 4, x += 4) {
        const uint32_t word = sm_word(x), first = sm_word(v), second = sm_word(w);
        const uint32_t even = sm_even(word), odd = sm_odd(word);
        a = sm_add_products(sm_even(first), even, a);
        a = sm_add_products(sm_odd(first), odd, a);
        b = sm_add_products(sm_even(second), even, b);
        b = sm_add_products(sm_odd(second), odd, b);
    }
#endif
    while (v != end) {
        const int32_t now = *x++;
        a += *v++ * now;
        b += *w++ * now;
    }
    acc[0] = a;
    acc[1] = b;
}

/* The last two rows overlap with those before if their number is odd. */
SM_SHARED void sm_one_column(const sm_matrix *m, const int8_t *x, int8_t *y) {
    const int n = m->columns, rows = m->rows;
    for (int at = 0; at < rows; at += 2) {
        const int row = at + 1 < rows || at == 0 ? at : at - 1, next = row + 1 < rows ? row + 1 : row;
        int32_t acc[2] = {m->bias[row], m->bias[next]};
        sm_two_rows(m->weights + row * n, m->weights + next * n, x, n, acc);
        y[row] = sm_finished(m, acc[0], row);
        y[next] = sm_finished(m, acc[1], next);
    }
}

/* output = rescaled(bias + weights * input) for each of n inputs. */
static inline void sm_fully_connected(int n, int rows, int columns, const int8_t *weights, const int32_t *bias,
                                      const int32_t *multiplier, const int8_t *shift, int per_row, int zero_point,
                                      int low, int high, const int8_t *input, int8_t *output) {
    const sm_matrix m = {rows, columns, weights, bias, multiplier, shift, per_row, zero_point, low, high};
    for (int i = 0; i + 1 < n; i += 2) {
        sm_two_columns(&m, input + i * columns, input + (i + 1) * columns, output + i * rows, output + (i + 1) * rows);
    }
    if (n & 1) {
        sm_one_column(&m, input + (n - 1) * columns, output + (n - 1) * rows);
    }
}

#endif
