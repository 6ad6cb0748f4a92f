/* Runs the network on an input of zeros and prints the stored output. With an argument, on a computer: reads inputs
   in bytes from the standard input until it ends and writes the outputs to the standard output. */
#include <stdio.h>
#include <string.h>

#include "${name}.h"

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        while (${reads}) {
            ${name}_run();
${writes}
        }
        return 0;
    }
${zeros}
    ${name}_run();
${prints}
    return 0;
}
