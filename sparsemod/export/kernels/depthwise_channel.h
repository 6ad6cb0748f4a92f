/* One channel of a depthwise convolution. The rows of the input that its taps meet are kept as 16-bit numbers
   without the zero point, zeros where the padding is: all outputs are then alike. */
#ifndef SM_DEPTHWISE_CHANNEL_H
#define SM_DEPTHWISE_CHANNEL_H

#include "common.h"

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

/* w: kernel_height * kernel_width. scratch: ((kernel_height - 1) * dilation_y + 1) rows of
   (out_width - 1) * stride_x + (kernel_width - 1) * dilation_x + 1 numbers. */
SM_SHARED void sm_depthwise_channel(const sm_depthwise_layer *s, const int8_t *w, int32_t bias, int32_t multiplier,
                                    int shift, const int8_t *input, int8_t *output, int16_t *scratch) {
    const int width = s->width, channels = s->channels, out_width = s->out_width, out_channels = s->out_channels;
    const int kernel_width = s->kernel_width, stride_x = s->stride_x;
    const int dilation_y = s->dilation_y, dilation_x = s->dilation_x, pad_x = s->pad_x;
    const int zero_point = s->zero_point, output_zero_point = s->output_zero_point, low = s->low, high = s->high;
    const int n_rows = (s->kernel_height - 1) * dilation_y + 1;
    const int row = (out_width - 1) * stride_x + (kernel_width - 1) * dilation_x + 1;
    const int copied = row - pad_x < width ? row - pad_x : width;
    const int special = s->kernel_height == 3 && kernel_width == 3 && dilation_x == 1;
    int32_t a01 = 0, a2 = 0, b01 = 0, b2 = 0, c01 = 0, c2 = 0;
    if (special) {
        a01 = sm_packed(w[0], w[1]);
        a2 = w[2];
        b01 = sm_packed(w[3], w[4]);
        b2 = w[5];
        c01 = sm_packed(w[6], w[7]);
        c2 = w[8];
    }
    int next = -s->pad_y, slot = 0, start = 0; /* slot of the next row to fill; of the first row in use */
    for (int y = 0; y < s->out_height; ++y) {
        for (const int needed = y * s->stride_y - s->pad_y + n_rows; next < needed; ++next) {
            int16_t *to = scratch + slot * row;
            if (++slot == n_rows) {
                slot = 0;
            }
            if (next < 0 || next >= s->height) {
                memset(to, 0, (size_t)row * sizeof *to);
                continue;
            }
            int16_t *const end = to + row;
            for (int i = 0; i < pad_x; ++i) {
                *to++ = 0;
            }
            const int8_t *from = input + next * width * channels;
            for (int16_t *const stop = to + copied; to != stop; from += channels) {
                *to++ = (int16_t)(*from - zero_point);
            }
            while (to != end) {
                *to++ = 0;
            }
        }
        if (special) {
            const int16_t *p = scratch + start * row;
            int other = start + dilation_y >= n_rows ? start + dilation_y - n_rows : start + dilation_y;
            const int16_t *q = scratch + other * row;
            other = other + dilation_y >= n_rows ? other + dilation_y - n_rows : other + dilation_y;
            const int16_t *r = scratch + other * row;
            for (int x = 0; x < out_width; ++x) {
                int32_t acc = bias;
                acc = sm_add_pair(p, a01, acc);
                acc += p[2] * (int16_t)a2;
                acc = sm_add_pair(q, b01, acc);
                acc += q[2] * (int16_t)b2;
                acc = sm_add_pair(r, c01, acc);
                acc += r[2] * (int16_t)c2;
                p += stride_x;
                q += stride_x;
                r += stride_x;
                *output = (int8_t)sm_clamp(sm_requantize(acc, multiplier, shift) + output_zero_point, low, high);
                output += out_channels;
            }
        } else {
            for (int x = 0; x < out_width; ++x) {
                int32_t acc = bias;
                int at = start;
                const int8_t *v = w;
                for (int ky = 0; ky < s->kernel_height; ++ky) {
                    const int16_t *p = scratch + at * row + x * stride_x;
                    for (int kx = 0; kx < kernel_width; ++kx) {
                        acc += p[kx * dilation_x] * *v++;
                    }
                    at += dilation_y;
                    at = at >= n_rows ? at - n_rows : at;
                }
                *output = (int8_t)sm_clamp(sm_requantize(acc, multiplier, shift) + output_zero_point, low, high);
                output += out_channels;
            }
        }
        start += s->stride_y;
        while (start >= n_rows) {
            start -= n_rows;
        }
    }
}
#endif
