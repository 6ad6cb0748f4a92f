/* Depthwise convolutions: each input channel has `multiplicity` output channels of its own. */
#ifndef SM_DEPTHWISE_H
#define SM_DEPTHWISE_H

#include "common.h"

typedef struct {
    int height, width, channels; /* of the input */
    int out_height, out_width, multiplicity;
    int kernel_height, kernel_width;
    int stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    int zero_point, output_zero_point, low, high;
    const int8_t *weights; /* (kernel height, kernel width, output channel) */
    const int32_t *bias, *multiplier;
    const int8_t *shift;
} sm_depthwise_shape;

/* The taps of an output that lie in the input: where they begin in weights and input, and how many there are. */
typedef struct {
    const int8_t *weights, *input;
    int rows, columns;
} sm_taps;

static inline int sm_first_tap(int at, int dilation) {
    return at >= 0 ? 0 : (dilation - 1 - at) / dilation;
}

static inline int sm_end_tap(int at, int dilation, int kernel, int size) {
    return at + (kernel - 1) * dilation < size ? kernel : (size - at + dilation - 1) / dilation;
}

static inline int8_t sm_depthwise_finished(const sm_depthwise_shape *s, int32_t acc, int channel) {
    const int32_t y = sm_requantize(acc, s->multiplier[channel], s->shift[channel]);
    return (int8_t)sm_clamp(y + s->output_zero_point, s->low, s->high);
}

/* Four channels from one on, when each input channel has one output. */
static inline void sm_depthwise_four(const sm_depthwise_shape *s, const sm_taps *taps, int channel, int8_t *output) {
    const int channels = s->channels, step = s->dilation_x * channels;
    const int row = s->dilation_y * s->width * channels - taps->columns * step;
    const int weight_row = (s->kernel_width - taps->columns) * channels;
#if SM_DSP
    const uint32_t offset = (uint32_t)(-s->zero_point & 0xFFFF) * UINT32_C(0x10001);
#else
    const int32_t zero_point = s->zero_point;
#endif
    int32_t a = s->bias[channel], b = s->bias[channel + 1], c = s->bias[channel + 2], d = s->bias[channel + 3];
    const int8_t *w = taps->weights + channel, *x = taps->input + channel;
    for (int i = taps->rows; i > 0; --i) {
        for (int j = taps->columns; j > 0; --j) {
#if SM_DSP
            const uint32_t word = sm_word(x), weight = sm_word(w);
            const uint32_t even = sm_even(weight), odd = sm_odd(weight);
            uint32_t x_even, x_odd;
            __asm__("sxtab16 %0, %1, %2" : "=r"(x_even) : "r"(offset), "r"(word));
            __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(x_odd) : "r"(offset), "r"(word));
            __asm__("smlabb %0, %1, %2, %0" : "+r"(a) : "r"(x_even), "r"(even));
            __asm__("smlabb %0, %1, %2, %0" : "+r"(b) : "r"(x_odd), "r"(odd));
            __asm__("smlatt %0, %1, %2, %0" : "+r"(c) : "r"(x_even), "r"(even));
            __asm__("smlatt %0, %1, %2, %0" : "+r"(d) : "r"(x_odd), "r"(odd));
#else
            a += (x[0] - zero_point) * w[0];
            b += (x[1] - zero_point) * w[1];
            c += (x[2] - zero_point) * w[2];
            d += (x[3] - zero_point) * w[3];
#endif
            x += step;
            w += channels;
        }
        x += row;
        w += weight_row;
    }
    output[channel] = sm_depthwise_finished(s, a, channel);
    output[channel + 1] = sm_depthwise_finished(s, b, channel + 1);
    output[channel + 2] = sm_depthwise_finished(s, c, channel + 2);
    output[channel + 3] = sm_depthwise_finished(s, d, channel + 3);
}

static inline int8_t sm_depthwise_one(const sm_depthwise_shape *s, const sm_taps *taps, int from, int channel) {
    const int step = s->dilation_x * s->channels, row = s->dilation_y * s->width * s->channels;
    const int out_channels = s->channels * s->multiplicity;
    const int8_t *weights = taps->weights + channel, *input = taps->input + from;
    int32_t acc = s->bias[channel];
    for (int i = taps->rows; i > 0; --i) {
        const int8_t *w = weights, *x = input;
        for (int j = taps->columns; j > 0; --j) {
            acc += (*x - s->zero_point) * *w;
            x += step;
            w += out_channels;
        }
        input += row;
        weights += s->kernel_width * out_channels;
    }
    return sm_depthwise_finished(s, acc, channel);
}

SM_SHARED void sm_depthwise_run(const sm_depthwise_shape *s, const int8_t *input, int8_t *output) {
    const int out_channels = s->channels * s->multiplicity;
    for (int y = 0; y < s->out_height; ++y) {
        const int top = y * s->stride_y - s->pad_y, first_row = sm_first_tap(top, s->dilation_y);
        const int rows = sm_end_tap(top, s->dilation_y, s->kernel_height, s->height) - first_row;
        for (int x = 0; x < s->out_width; ++x) {
            const int left = x * s->stride_x - s->pad_x, first_column = sm_first_tap(left, s->dilation_x);
            const int columns = sm_end_tap(left, s->dilation_x, s->kernel_width, s->width) - first_column;
            const int place = (top + first_row * s->dilation_y) * s->width + left + first_column * s->dilation_x;
            const sm_taps taps = {s->weights + (first_row * s->kernel_width + first_column) * out_channels,
                                  input + place * s->channels, columns > 0 ? rows : 0, columns};
            int channel = 0;
            if (s->multiplicity == 1) {
                for (; channel + 4 <= out_channels; channel += 4) {
                    sm_depthwise_four(s, &taps, channel, output);
                }
            }
            for (int from = channel, part = 0; channel < out_channels; ++channel) {
                output[channel] = sm_depthwise_one(s, &taps, from, channel);
                if (++part == s->multiplicity) {
                    part = 0;
                    ++from;
                }
            }
            output += out_channels;
        }
    }
}

static inline void sm_depthwise(int height, int width, int channels, int out_height, int out_width, int multiplicity,
                                int kernel_height, int kernel_width, int stride_y, int stride_x, int dilation_y,
                                int dilation_x, int pad_y, int pad_x, int zero_point, int output_zero_point, int low,
                                int high, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                                const int8_t *shift, const int8_t *input, int8_t *output) {
    const sm_depthwise_shape shape = {height,   width,      channels,   out_height,    out_width,    multiplicity,
                                      kernel_height, kernel_width, stride_y, stride_x, dilation_y,   dilation_x,
                                      pad_y,    pad_x,      zero_point, output_zero_point, low,      high,
                                      weights,  bias,       multiplier, shift};
    sm_depthwise_run(&shape, input, output);
}

#endif
