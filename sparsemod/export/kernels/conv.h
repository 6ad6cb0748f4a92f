/* Convolutions: the input of two output pixels at a time as columns, times the matrix of weights. */
#ifndef SM_CONV_H
#define SM_CONV_H

#include "matrix.h"

typedef struct {
    int height, width, channels; /* of the input */
    int out_height, out_width, out_channels;
    int kernel_height, kernel_width, groups;
    int stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    int zero_point; /* of the input */
    int direct;     /* 1: a column inside the input lies in it as it is; 0: its rows do; -1: only its taps do */
} sm_conv_shape;

static inline void sm_copy(int8_t *to, const int8_t *from, int n) {
    for (; n >= 4; n -= 4, to += 4, from += 4) {
        memcpy(to, from, 4);
    }
    while (n-- > 0) {
        *to++ = *from++;
    }
}

/* The column of an output pixel: its place in the input, or a copy with the padding. */
SM_SHARED const int8_t *sm_column(const sm_conv_shape *s, const int8_t *input, int y, int x, int8_t *copy) {
    const int row = s->width * s->channels, depth = s->channels / s->groups;
    const int last_y = y + (s->kernel_height - 1) * s->dilation_y, last_x = x + (s->kernel_width - 1) * s->dilation_x;
    int8_t *to = copy;
    if (s->direct >= 0 && y >= 0 && x >= 0 && last_y < s->height && last_x < s->width) {
        const int n = s->kernel_width * depth;
        const int8_t *from = input + y * row + x * s->channels;
        if (s->direct) {
            return from;
        }
        for (int i = 0; i < s->kernel_height; ++i) {
            sm_copy(to, from, n);
            to += n;
            from += s->dilation_y * row;
        }
        return copy;
    }
    for (int i = y; i <= last_y; i += s->dilation_y) {
        for (int j = x; j <= last_x; j += s->dilation_x) {
            if (i >= 0 && i < s->height && j >= 0 && j < s->width) {
                sm_copy(to, input + i * row + j * s->channels, depth);
            } else {
                memset(to, s->zero_point, (size_t)depth);
            }
            to += depth;
        }
    }
    return copy;
}

/* Groups one after the other, so that the weights of one are read in a row. */
SM_SHARED void sm_conv_run(const sm_conv_shape *s, sm_matrix *m, const int8_t *input, int8_t *output,
                           int8_t *scratch) {
    for (int group = 0; group < s->groups; ++group) {
        const int8_t *waiting = 0;
        int8_t *out = output, *before = output;
        for (int y = 0; y < s->out_height; ++y) {
            const int top = y * s->stride_y - s->pad_y;
            for (int x = 0; x < s->out_width; ++x) {
                const int8_t *column = sm_column(s, input, top, x * s->stride_x - s->pad_x,
                                                 waiting ? scratch + m->columns : scratch);
                if (waiting) {
                    sm_two_columns(m, waiting, column, before, out);
                    waiting = 0;
                } else {
                    waiting = column;
                    before = out;
                }
                out += s->out_channels;
            }
        }
        if (waiting) {
            sm_two_columns(m, waiting, waiting, before, before);
        }
        input += s->channels / s->groups;
        output += m->rows;
        m->weights += m->rows * m->columns;
        m->bias += m->rows;
        m->multiplier += m->rows * m->per_row;
        m->shift += m->rows * m->per_row;
    }
}

/* scratch: two columns. */
static inline void sm_conv(int height, int width, int channels, int out_height, int out_width, int out_channels,
                           int kernel_height, int kernel_width, int groups, int stride_y, int stride_x, int dilation_y,
                           int dilation_x, int pad_y, int pad_x, int zero_point, int output_zero_point, int low,
                           int high, int direct, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                           const int8_t *shift, const int8_t *input, int8_t *output, int8_t *scratch) {
    const sm_conv_shape shape = {height,    width,        channels,      out_height,   out_width, out_channels,
                                 kernel_height, kernel_width, groups,    stride_y,     stride_x,  dilation_y,
                                 dilation_x, pad_y,       pad_x,         zero_point,   direct};
    sm_matrix m = {out_channels / groups, kernel_height * kernel_width * (channels / groups), weights, bias,
                   multiplier, shift, 1, output_zero_point, low, high};
    sm_conv_run(&shape, &m, input, output, scratch);
}

#endif
