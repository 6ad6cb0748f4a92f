/* Pools. What lies in the padding has no part in them. */
#ifndef SM_POOL_H
#define SM_POOL_H

#include "common.h"

typedef struct {
    int height, width, channels;
    int out_height, out_width;
    int filter_height, filter_width, stride_y, stride_x, pad_y, pad_x;
    int low, high;
} sm_pool_shape;

/* The part of an output's window that lies in the input. */
typedef struct {
    const int8_t *input;
    int rows, columns;
} sm_window;

static inline sm_window sm_pool_window(const sm_pool_shape *s, const int8_t *input, int y, int x) {
    const int top = y * s->stride_y - s->pad_y, left = x * s->stride_x - s->pad_x;
    const int bottom = top + s->filter_height < s->height ? top + s->filter_height : s->height;
    const int right = left + s->filter_width < s->width ? left + s->filter_width : s->width;
    const int first = top > 0 ? top : 0, begin = left > 0 ? left : 0;
    const sm_window window = {input + (first * s->width + begin) * s->channels, bottom - first, right - begin};
    return window;
}

static inline void sm_max_of_window(const sm_pool_shape *s, const sm_window *window, int8_t *output) {
    const int channels = s->channels, row = (s->width - window->columns) * channels;
    int channel = 0;
#if SM_DSP
    if (s->low == -128 && s->high == 127) {
        for (; channel + 4 <= channels; channel += 4) {
            const int8_t *x = window->input + channel;
            uint32_t most = UINT32_C(0x80808080);
            for (int i = window->rows; i > 0; --i) {
                for (int j = window->columns; j > 0; --j) {
                    const uint32_t word = sm_word(x);
                    __asm__("ssub8 r12, %1, %0\n\tsel %0, %1, %0" : "+r"(most) : "r"(word) : "r12", "cc");
                    x += channels;
                }
                x += row;
            }
            memcpy(output + channel, &most, 4);
        }
    }
#endif
    for (; channel < channels; ++channel) {
        const int8_t *x = window->input + channel;
        int32_t most = -128;
        for (int i = window->rows; i > 0; --i) {
            for (int j = window->columns; j > 0; --j) {
                most = *x > most ? *x : most;
                x += channels;
            }
            x += row;
        }
        output[channel] = (int8_t)sm_clamp(most, s->low, s->high);
    }
}

static inline void sm_average_of_window(const sm_pool_shape *s, const sm_window *window, int8_t *output) {
    const int channels = s->channels, row = (s->width - window->columns) * channels;
    const int32_t count = window->rows * window->columns, half = count / 2;
    for (int channel = 0; channel < channels; ++channel) {
        const int8_t *x = window->input + channel;
        int32_t total = 0;
        for (int i = window->rows; i > 0; --i) {
            for (int j = window->columns; j > 0; --j) {
                total += *x;
                x += channels;
            }
            x += row;
        }
        total = (total > 0 ? total + half : total - half) / count;
        output[channel] = (int8_t)sm_clamp(total, s->low, s->high);
    }
}

SM_SHARED void sm_max_pool_run(const sm_pool_shape *s, const int8_t *input, int8_t *output) {
    for (int y = 0; y < s->out_height; ++y) {
        for (int x = 0; x < s->out_width; ++x, output += s->channels) {
            const sm_window window = sm_pool_window(s, input, y, x);
            sm_max_of_window(s, &window, output);
        }
    }
}

SM_SHARED void sm_average_pool_run(const sm_pool_shape *s, const int8_t *input, int8_t *output) {
    for (int y = 0; y < s->out_height; ++y) {
        for (int x = 0; x < s->out_width; ++x, output += s->channels) {
            const sm_window window = sm_pool_window(s, input, y, x);
            sm_average_of_window(s, &window, output);
        }
    }
}

static inline void sm_max_pool(int height, int width, int channels, int out_height, int out_width, int filter_height,
                               int filter_width, int stride_y, int stride_x, int pad_y, int pad_x, int low, int high,
                               const int8_t *input, int8_t *output) {
    const sm_pool_shape shape = {height,   width,    channels, out_height, out_width, filter_height, filter_width,
                                 stride_y, stride_x, pad_y,    pad_x,      low,       high};
    sm_max_pool_run(&shape, input, output);
}

static inline void sm_average_pool(int height, int width, int channels, int out_height, int out_width,
                                   int filter_height, int filter_width, int stride_y, int stride_x, int pad_y,
                                   int pad_x, int low, int high, const int8_t *input, int8_t *output) {
    const sm_pool_shape shape = {height,   width,    channels, out_height, out_width, filter_height, filter_width,
                                 stride_y, stride_x, pad_y,    pad_x,      low,       high};
    sm_average_pool_run(&shape, input, output);
}

#endif
