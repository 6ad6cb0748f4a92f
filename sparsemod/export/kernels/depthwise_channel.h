/* One channel of a depthwise convolution. The rows of the input that its taps meet are kept as 16-bit numbers
   without the zero point, zeros where the padding is: all outputs are then alike. */
#ifndef SM_DEPTHWISE_CHANNEL_H
#define SM_DEPTHWISE_CHANNEL_H

#include "store.h"

typedef struct {
    int height, width, channels; /* of the input */
    int out_height, out_width, out_channels;
    int kernel_height, kernel_width;
    int stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    int zero_point, output_zero_point, low, high;
} sm_depthwise_layer;

static inline int32_t sm_packed(int32_t low, int32_t high) {
    return (int32_t)((uint32_t)(low & 0xFFFF) | (uint32_t)high << 16);
}

#if SM_DSP
static inline int32_t sm_add_pair(const int16_t *x, int32_t packed, int32_t acc) {
    uint32_t word;
    memcpy(&word, x, 4);
    return sm_add_products(word, (uint32_t)packed, acc);
}
#else
static inline int32_t sm_add_pair(const int16_t *x, int32_t packed, int32_t acc) {
    return acc + x[0] * (int16_t)packed + x[1] * (packed >> 16);
}
#endif

/* A row of the input between its padding; from is 0 where the whole row is padding. */
SM_SHARED void sm_depthwise_fill(const sm_depthwise_layer *s, const int8_t *from, int16_t *to, int row) {
    const int zero_point = s->zero_point, channels = s->channels;
    int16_t *const end = to + row;
    if (from) {
        for (int16_t *const stop = to + s->pad_x; to != stop;) {
            *to++ = 0;
        }
        for (int16_t *const stop = end - to < s->width ? end : to + s->width; to != stop; from += channels) {
            *to++ = (int16_t)(*from - zero_point);
        }
    }
    while (to != end) {
        *to++ = 0;
    }
}

/* Nine weights: rows of a pair and a single one. */
SM_SHARED void sm_depthwise_nine(const int32_t *w, const int16_t *p, const int16_t *q, const int16_t *r, int step,
                                 int32_t bias, int32_t *acc, int32_t *end) {
    const int32_t a = w[0], b = w[1], c = w[2], d = w[3], e = w[4], f = w[5];
    while (acc != end) {
        int32_t sum = sm_add_pair(p, a, bias);
        sum = sm_add_pair(q, c, sum);
        sum = sm_add_pair(r, e, sum);
        sum += p[2] * (int16_t)b;
        sum += q[2] * (int16_t)d;
        sum += r[2] * (int16_t)f;
        p += step;
        q += step;
        r += step;
        *acc++ = sum;
    }
}

/* One row of taps. */
SM_SHARED void sm_depthwise_line(const int8_t *w, int n, int dilation, const int16_t *row, int step, int32_t *acc,
                                 int32_t *end) {
    for (; acc != end; ++acc, row += step) {
        const int16_t *x = row;
        int32_t sum = *acc;
        for (int i = 0; i < n; ++i, x += dilation) {
            sum += *x * w[i];
        }
        *acc = sum;
    }
}

/* w: kernel_height * kernel_width. scratch: the sums of out_width outputs, then rows of 16-bit numbers, which are
   (kernel_height - 1) * dilation_y + 1 of (out_width - 1) * stride_x + (kernel_width - 1) * dilation_x + 1. */
SM_SHARED void sm_depthwise_channel(const sm_depthwise_layer *s, const int8_t *w, int32_t bias, int32_t multiplier,
                                    int shift, const int8_t *input, int8_t *output, int32_t *scratch) {
    const sm_store_rule rule = {multiplier, shift, s->output_zero_point, s->low, s->high};
    const int n_rows = (s->kernel_height - 1) * s->dilation_y + 1;
    const int row = (s->out_width - 1) * s->stride_x + (s->kernel_width - 1) * s->dilation_x + 1;
    const int nine = s->kernel_height == 3 && s->kernel_width == 3 && s->dilation_x == 1;
    int32_t *const end = scratch + s->out_width;
    int16_t *const rows = (int16_t *)end;
    int32_t packed[6] = {0};
    for (int i = 0; nine && i < 3; ++i) {
        packed[2 * i] = sm_packed(w[3 * i], w[3 * i + 1]);
        packed[2 * i + 1] = w[3 * i + 2];
    }
    int next = -s->pad_y, slot = 0, start = 0; /* slot of the next row to fill; of the first row in use */
    for (int y = 0; y < s->out_height; ++y) {
        for (const int needed = y * s->stride_y - s->pad_y + n_rows; next < needed; ++next) {
            const int8_t *from = next < 0 || next >= s->height ? 0 : input + next * s->width * s->channels;
            sm_depthwise_fill(s, from, rows + slot * row, row);
            slot = slot + 1 < n_rows ? slot + 1 : 0;
        }
        int at = start;
        if (nine) {
            const int16_t *taps[3];
            for (int i = 0; i < 3; ++i) {
                taps[i] = rows + at * row;
                at += s->dilation_y;
                at = at < n_rows ? at : at - n_rows;
            }
            sm_depthwise_nine(packed, taps[0], taps[1], taps[2], s->stride_x, bias, scratch, end);
        } else {
            for (int32_t *acc = scratch; acc != end;) {
                *acc++ = bias;
            }
            for (int i = 0; i < s->kernel_height; ++i) {
                sm_depthwise_line(w + i * s->kernel_width, s->kernel_width, s->dilation_x, rows + at * row, s->stride_x,
                                  scratch, end);
                at += s->dilation_y;
                at = at < n_rows ? at : at - n_rows;
            }
        }
        sm_store(&rule, scratch, end, output, s->out_channels);
        output += s->out_width * s->out_channels;
        for (start += s->stride_y; start >= n_rows;) {
            start -= n_rows;
        }
    }
}

#endif
