/* A neural network in integers. See README.md. */
#ifndef ${NAME}_H
#define ${NAME}_H

#include <stdint.h>

/* A stored value q stands for the number (q - ZERO_POINT) * SCALE. */
${ports}
#define ${NAME}_ARENA_BYTES ${arena_bytes}
#define ${NAME}_CONSTANT_BYTES ${constant_bytes}
${described}
/* Where to put the input before ${name}_run, and where the output is after it. Both lie in the arena: the run may
   overwrite the input. */
${declarations}

/* Runs the network once. Not to be interrupted by another run of it. */
void ${name}_run(void);

#endif
