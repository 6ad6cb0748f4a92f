/* Convolutions with few weights. The weights of one output channel are unpacked into a list of (offset in the
   input, value), which then serves all of the channel's output pixels, four at a time. */
#ifndef SM_SPARSE_CONV_H
#define SM_SPARSE_CONV_H

#include "sparse_bits.h"
#include "store.h"

/* Adds the product with the lower half of a word. */
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP)
#define SM_ADD_PRODUCT(acc, x, word) __asm__("smlabb %0, %1, %2, %0" : "+r"(acc) : "r"((int32_t)(x)), "r"(word))
#else
#define SM_ADD_PRODUCT(acc, x, word) ((acc) += (x) * (int16_t)(word))
#endif

/* Keeps the compiler from deriving a value again and again from what it was made of. */
#if defined(__GNUC__)
#define SM_OPAQUE(value) __asm__("" : "+r"(value))
#else
#define SM_OPAQUE(value) (void)(value)
#endif

typedef struct {
    int height, width, channels;          /* of the input */
    int out_height, out_width, out_channels;
    int kernel_height, kernel_width, group_channels, group_out_channels;
    int stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    int zero_point, output_zero_point, low, high;
} sm_sparse_shape;

/* The list of one output channel: offset in the upper half, value in the lower. Tap t has the entries first[t] to first[t + 1],
   and sum[t] is what the values of all taps before it add up to. */
typedef struct {
    int32_t *first, *sum;
    uint32_t *entries;
} sm_sparse_list;

SM_SHARED void sm_sparse_unpack(sm_sparse *walk, const sm_sparse_shape *s, const sm_sparse_list *list) {
    const int row_step = s->dilation_y * s->width * s->channels, step = s->dilation_x * s->channels;
    const int n_taps = s->kernel_height * s->kernel_width;
    uint32_t n = (uint32_t)(n_taps * s->group_channels), limit = (uint32_t)s->group_channels, from = 0;
    uint32_t *entry = list->entries;
    const int8_t *values = walk->values;
    int32_t sum = 0;
    int base = 0, tap = 0, column = 0; /* a weight's offset is base + its position */
    list->first[0] = 0;
    list->sum[0] = 0;
    while (n > 0) {
        const uint32_t chunk = sm_sparse_chunk(walk->at, n);
        uint32_t word = sm_sparse_bits(walk->bits, walk->at, chunk);
        while (word) {
            const uint32_t first = SM_FIRST(word);
            word = SM_DROP(word, first);
            while (from + first >= limit) {
                ++tap;
                list->first[tap] = (int32_t)(entry - list->entries);
                list->sum[tap] = sum;
                limit += (uint32_t)s->group_channels;
                base += step - s->group_channels;
                if (++column == s->kernel_width) {
                    column = 0;
                    base += row_step - s->kernel_width * step;
                }
            }
            sum += *values;
            *entry++ = (uint32_t)(base + (int)(from + first)) << 16 | (uint16_t)*values++;
        }
        walk->at += chunk;
        from += chunk;
        n -= chunk;
    }
    walk->values = values;
    while (tap < n_taps) {
        ++tap;
        list->first[tap] = (int32_t)(entry - list->entries);
        list->sum[tap] = sum;
    }
}

/* Adds the products of entries with four pixels that lie a step apart. Addresses are numbers, as that of a pixel in
   the padding is outside of the input. */
SM_SHARED void sm_sparse_four(const uint32_t *entry, const uint32_t *end, uintptr_t pixel, int step, int32_t *acc) {
    int32_t a = acc[0], b = acc[1], c = acc[2], d = acc[3];
    int step_3 = 3 * step;
    SM_OPAQUE(step_3);
    while (entry != end) {
        const uint32_t now = *entry++;
        const int8_t *x = (const int8_t *)(pixel + (now >> 16));
        SM_OPAQUE(x);
        SM_ADD_PRODUCT(a, x[0], now);
        SM_ADD_PRODUCT(b, x[step], now);
        SM_ADD_PRODUCT(c, x[2 * step], now);
        SM_ADD_PRODUCT(d, x[step_3], now);
    }
    acc[0] = a;
    acc[1] = b;
    acc[2] = c;
    acc[3] = d;
}

SM_SHARED int32_t sm_sparse_one(const uint32_t *entry, const uint32_t *end, uintptr_t pixel) {
    int32_t acc = 0;
    while (entry != end) {
        const uint32_t now = *entry++;
        acc += *(const int8_t *)(pixel + (now >> 16)) * (int16_t)now;
    }
    return acc;
}

/* What one output channel needs. */
typedef struct {
    const sm_sparse_shape *shape;
    sm_sparse_list list;
    int32_t bias;
    sm_store_rule rule;
} sm_sparse_channel;

/* The taps from begin to end of an axis that meet the input at this position. */
typedef struct {
    int begin, end;
} sm_sparse_range;

SM_SHARED sm_sparse_range sm_sparse_taps(int at, int size, int kernel, int dilation) {
    sm_sparse_range taps = {0, kernel};
    int last = at + (kernel - 1) * dilation;
    for (; at < 0 && taps.begin < kernel; at += dilation) {
        ++taps.begin;
    }
    for (; last >= size && taps.end > taps.begin; last -= dilation) {
        --taps.end;
    }
    return taps;
}

/* The outputs from begin to end of an axis at which all taps meet the input; none where there are less than the
   four that are computed together. */
SM_SHARED sm_sparse_range sm_sparse_inside(int size, int out, int kernel, int dilation, int stride, int pad) {
    const int reach = (kernel - 1) * dilation;
    sm_sparse_range inside = {0, out};
    while (inside.begin * stride < pad) {
        ++inside.begin;
    }
    while ((inside.end - 1) * stride - pad + reach >= size) {
        --inside.end;
    }
    if (inside.end - inside.begin < 4) {
        inside.begin = inside.end = 0;
    }
    return inside;
}

/* The first position from this one on that is not inside. */
static inline int sm_sparse_outside(int at, sm_sparse_range inside) {
    return at >= inside.begin && at < inside.end ? inside.end : at;
}

/* n outputs that meet the same taps. The outputs lie out_step apart, their inputs step apart. */
SM_SHARED void sm_sparse_strip(const sm_sparse_channel *c, sm_sparse_range rows, sm_sparse_range columns, int n,
                               uintptr_t pixel, int step, int8_t *output, int out_step) {
    const sm_sparse_shape *s = c->shape;
    int width = columns.end - columns.begin, next = s->kernel_width;
    int begin = rows.begin * next + columns.begin;
    const int end = rows.end * next;
    if (width == next) { /* whole rows of taps follow each other in the list */
        width = next = end - begin;
    }
    int32_t bias = 0;
    for (int tap = begin; tap < end; tap += next) {
        bias += c->list.sum[tap + width] - c->list.sum[tap];
    }
    bias = c->bias - s->zero_point * bias;
    for (int at = 0; at < n;) {
        const int count = n < 4 ? 1 : 4;
        /* The last four overlap with those before. */
        const int from = at > n - count ? n - count : at;
        const uintptr_t first = pixel + (uintptr_t)(from * step);
        int8_t *out = output + from * out_step;
        int32_t acc[4] = {bias, bias, bias, bias};
        for (int tap = begin; tap < end; tap += next) {
            const uint32_t *entry = c->list.entries + c->list.first[tap];
            const uint32_t *stop = c->list.entries + c->list.first[tap + width];
            if (entry == stop) {
                continue;
            }
            if (count == 4) {
                sm_sparse_four(entry, stop, first, step, acc);
            } else {
                acc[0] += sm_sparse_one(entry, stop, first);
            }
        }
        sm_store(&c->rule, acc, acc + count, out, out_step);
        at += count;
    }
}

/* Inside, outputs go in strips along a row; where taps at the left and right are in the padding, along a column. */
SM_SHARED void sm_sparse_plane(const sm_sparse_channel *c, const int8_t *input, int8_t *output) {
    const sm_sparse_shape *s = c->shape;
    const int row = s->width * s->channels, out_row = s->out_width * s->out_channels;
    const int step_y = s->stride_y * row, step_x = s->stride_x * s->channels;
    const uintptr_t corner = (uintptr_t)input - (uintptr_t)(s->pad_y * row + s->pad_x * s->channels);
    const sm_sparse_range y_in = sm_sparse_inside(s->height, s->out_height, s->kernel_height, s->dilation_y,
                                                  s->stride_y, s->pad_y);
    const sm_sparse_range x_in = sm_sparse_inside(s->width, s->out_width, s->kernel_width, s->dilation_x,
                                                  s->stride_x, s->pad_x);
    const sm_sparse_range all_columns = {0, s->kernel_width}, all_rows = {0, s->kernel_height};
    for (int y = 0; y < s->out_height; ++y) {
        const int at = y * s->stride_y - s->pad_y;
        const sm_sparse_range rows = sm_sparse_taps(at, s->height, s->kernel_height, s->dilation_y);
        const uintptr_t pixel = corner + (uintptr_t)(y * step_y);
        int8_t *out = output + y * out_row;
        sm_sparse_strip(c, rows, all_columns, x_in.end - x_in.begin, pixel + (uintptr_t)(x_in.begin * step_x), step_x,
                        out + x_in.begin * s->out_channels, s->out_channels);
        if (y < y_in.begin || y >= y_in.end) {
            for (int x = sm_sparse_outside(0, x_in); x < s->out_width; x = sm_sparse_outside(x + 1, x_in)) {
                const sm_sparse_range columns =
                    sm_sparse_taps(x * s->stride_x - s->pad_x, s->width, s->kernel_width, s->dilation_x);
                sm_sparse_strip(c, rows, columns, 1, pixel + (uintptr_t)(x * step_x), 0, out + x * s->out_channels, 0);
            }
        }
    }
    if (y_in.begin < y_in.end) {
        for (int x = sm_sparse_outside(0, x_in); x < s->out_width; x = sm_sparse_outside(x + 1, x_in)) {
            const sm_sparse_range columns =
                sm_sparse_taps(x * s->stride_x - s->pad_x, s->width, s->kernel_width, s->dilation_x);
            sm_sparse_strip(c, all_rows, columns, y_in.end - y_in.begin,
                            corner + (uintptr_t)(y_in.begin * step_y + x * step_x), step_y,
                            output + y_in.begin * out_row + x * s->out_channels, out_row);
        }
    }
}

SM_SHARED void sm_sparse_planes(const sm_sparse_shape *s, const uint8_t *weights, const int32_t *bias,
                                       const int32_t *multiplier, const int8_t *shift, const int8_t *input,
                                       int8_t *output, int32_t *scratch) {
    const int n_taps = s->kernel_height * s->kernel_width;
    sm_sparse_channel c = {s, {scratch, scratch + n_taps + 1, (uint32_t *)(scratch + 2 * (n_taps + 1))}, 0,
                           {0, 0, s->output_zero_point, s->low, s->high}};
    sm_sparse walk = sm_sparse_begin(weights, (uint32_t)(s->out_channels * n_taps * s->group_channels));
    int left = s->group_out_channels;
    for (int channel = 0; channel < s->out_channels; ++channel) {
        sm_sparse_unpack(&walk, s, &c.list);
        c.bias = bias[channel];
        c.rule.multiplier = multiplier[channel];
        c.rule.shift = shift[channel];
        sm_sparse_plane(&c, input, output + channel);
        if (--left == 0) {
            left = s->group_out_channels;
            input += s->group_channels;
        }
    }
}

/* Weights in the order (output channels, kernel height, kernel width, channels of a group). A depthwise
   convolution has as many groups as input channels. scratch: 2 * (kernel height * kernel width + 1) + (most
   non-zero weights of an output channel) numbers. Pads: what lies above and to the left of the input. */
static inline void sm_sparse_conv(int height, int width, int channels, int out_height, int out_width,
                                  int out_channels, int kernel_height, int kernel_width, int groups, int stride_y,
                                  int stride_x, int dilation_y, int dilation_x, int pad_y, int pad_x, int zero_point,
                                  int output_zero_point, int low, int high, const uint8_t *weights,
                                  const int32_t *bias, const int32_t *multiplier, const int8_t *shift,
                                  const int8_t *input, int8_t *output, int32_t *scratch) {
    const sm_sparse_shape shape = {height,       width,        channels,          out_height,
                                   out_width,    out_channels, kernel_height,     kernel_width,
                                   channels / groups, out_channels / groups, stride_y, stride_x,
                                   dilation_y,   dilation_x,   pad_y,             pad_x,
                                   zero_point,   output_zero_point, low,          high};
    sm_sparse_planes(&shape, weights, bias, multiplier, shift, input, output, scratch);
}

#endif
