/* Weights as a bitmap, lowest bit of a byte first, and the values of its ones in order. */
#ifndef SM_SPARSE_BITS_H
#define SM_SPARSE_BITS_H

#include "common.h"

/* SM_FIRST(word) is the position of the first one, SM_DROP(word, first) removes it. The word is mirrored where
   a core counts leading zeros but not trailing ones. */
#if defined(__GNUC__) && defined(__thumb2__)
static inline uint32_t sm_mirrored(uint32_t word) {
    __asm__("rbit %0, %0" : "+r"(word));
    return word;
}
#define SM_LOADED(word) sm_mirrored(word)
#define SM_FIRST(word) __builtin_clz(word)
#define SM_DROP(word, first) ((word) & ~(UINT32_C(0x80000000) >> (first)))
#else
#define SM_LOADED(word) (word)
#define SM_DROP(word, first) ((word) & ((word) - 1))
#if defined(__GNUC__) && !defined(__ARM_ARCH_6M__) && !defined(__ARM_ARCH_8M_BASE__)
#define SM_FIRST(word) __builtin_ctz(word)
#else
/* Neither a count of zeros: a de Bruijn sequence, whose windows of five bits are all different. */
static const uint8_t sm_position[32] = {0,  1,  28, 2,  29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4,  8,
                                        31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6,  11, 5,  10, 9};
#define SM_FIRST(word) sm_position[(((word) & (0u - (word))) * UINT32_C(0x077CB531)) >> 27]
#endif
#endif

static inline uint32_t sm_sparse_word(const uint8_t *bits) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t word;
    memcpy(&word, bits, 4);
    return word;
#else
    return bits[0] | (uint32_t)bits[1] << 8 | (uint32_t)bits[2] << 16 | (uint32_t)bits[3] << 24;
#endif
}

/* Where a walk over a tensor is. */
typedef struct {
    const uint8_t *bits;
    const int8_t *values; /* of the next one */
    uint32_t at;          /* the next bit */
} sm_sparse;

/* The start of a tensor of n weights: the bitmap in whole bytes, then the values. */
static inline sm_sparse sm_sparse_begin(const uint8_t *weights, uint32_t n) {
    const sm_sparse walk = {weights, (const int8_t *)weights + (n + 7) / 8, 0};
    return walk;
}

/* How many bits sm_sparse_bits takes at once from a position on when so many are left. */
static inline uint32_t sm_sparse_chunk(uint32_t at, uint32_t left) {
    const uint32_t most = 32 - (at & 7);
    return left < most ? left : most;
}

/* A chunk of n bits; no byte is read that holds none of them, as the array may end there. */
SM_SHARED uint32_t sm_sparse_bits(const uint8_t *bits, uint32_t at, uint32_t n) {
    const uint32_t end = (at & 7) + n;
    uint32_t word = 0;
    bits += at >> 3;
    if (end > 24) {
        word = sm_sparse_word(bits);
    } else {
        for (uint32_t i = 0; i < end; i += 8) {
            word |= (uint32_t)*bits++ << i;
        }
    }
    return SM_LOADED(word >> (at & 7) << (32 - n) >> (32 - n));
}

#endif
