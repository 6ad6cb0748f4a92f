/* Depthwise convolutions with few weights: those of one channel are unpacked, then they are applied like full ones. */
#ifndef SM_SPARSE_DEPTHWISE_H
#define SM_SPARSE_DEPTHWISE_H

#include "depthwise_channel.h"
#include "sparse_bits.h"

/* The next n weights with their zeros. */
SM_SHARED void sm_sparse_expand(sm_sparse *walk, int8_t *weights, uint32_t n) {
    memset(weights, 0, n);
    while (n > 0) {
        const uint32_t chunk = sm_sparse_chunk(walk->at, n);
        uint32_t word = sm_sparse_bits(walk->bits, walk->at, chunk);
        while (word) {
            const uint32_t first = SM_FIRST(word);
            word = SM_DROP(word, first);
            weights[first] = *walk->values++;
        }
        walk->at += chunk;
        weights += chunk;
        n -= chunk;
    }
}

/* Weights in the order (output channels, kernel height, kernel width). scratch: that of
   sm_depthwise_channel, then the bytes of one channel's weights. */
SM_SHARED void sm_sparse_channels(const sm_depthwise_layer *s, const uint8_t *weights, const int32_t *bias,
                                  const int32_t *multiplier, const int8_t *shift, const int8_t *input, int8_t *output,
                                  int32_t *scratch) {
    const int n_taps = s->kernel_height * s->kernel_width;
    const int row = (s->out_width - 1) * s->stride_x + (s->kernel_width - 1) * s->dilation_x + 1;
    int8_t *const expanded =
        (int8_t *)((int16_t *)(scratch + s->out_width) + ((s->kernel_height - 1) * s->dilation_y + 1) * row);
    sm_sparse walk = sm_sparse_begin(weights, (uint32_t)(s->out_channels * n_taps));
    /* Output channels of one input channel follow each other. */
    for (int o = 0, part = 0; o < s->out_channels; ++o) {
        sm_sparse_expand(&walk, expanded, (uint32_t)n_taps);
        sm_depthwise_channel(s, expanded, bias[o], multiplier[o], shift[o], input, output + o, scratch);
        part += s->channels;
        if (part == s->out_channels) {
            part = 0;
            ++input;
        }
    }
}

static inline void sm_sparse_depthwise(int height, int width, int channels, int out_height, int out_width,
                                       int out_channels, int kernel_height, int kernel_width, int stride_y,
                                       int stride_x, int dilation_y, int dilation_x, int pad_y, int pad_x,
                                       int zero_point, int output_zero_point, int low, int high,
                                       const uint8_t *weights, const int32_t *bias, const int32_t *multiplier,
                                       const int8_t *shift, const int8_t *input, int8_t *output, int32_t *scratch) {
    const sm_depthwise_layer layer = {height,       width,        channels,   out_height, out_width,  out_channels,
                                      kernel_height, kernel_width, stride_y,  stride_x,   dilation_y, dilation_x,
                                      pad_y,        pad_x,        zero_point, output_zero_point, low, high};
    sm_sparse_channels(&layer, weights, bias, multiplier, shift, input, output, scratch);
}

#endif
