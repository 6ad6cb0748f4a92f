#include "${name}.h"

#include <string.h>

${includes}

/* All of the network that has to be in flash beside its code. */
${constants}
static union {
    int8_t bytes[${NAME}_ARENA_BYTES];
    uint64_t aligned;
} ${name}_arena;

#define ARENA (${name}_arena.bytes)

${accessors}

void ${name}_run(void) {
${body}
}
