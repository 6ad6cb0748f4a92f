/* Runs the network on an input of zeros and prints the stored output. With an argument, on a computer: reads inputs
   of ${NAME}_INPUT_BYTES bytes from the standard input until it ends and writes the outputs to the standard
   output. */
#include <stdio.h>
#include <string.h>

#include "${name}.h"

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        while (fread(${name}_input(), 1, ${NAME}_INPUT_BYTES, stdin) == ${NAME}_INPUT_BYTES) {
            ${name}_run();
            fwrite(${name}_output(), 1, ${NAME}_OUTPUT_BYTES, stdout);
        }
        return 0;
    }
    memset(${name}_input(), ${NAME}_INPUT_ZERO_POINT, ${NAME}_INPUT_BYTES);
    ${name}_run();
    for (int i = 0; i < ${NAME}_OUTPUT_BYTES; ++i) {
        printf("%d\n", ${name}_output()[i]);
    }
    return 0;
}
