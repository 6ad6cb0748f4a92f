/* Reset of a Cortex-M: fills the RAM, runs main if there is one, and stops at sm_stop. */
#include <stdint.h>

extern uint32_t sm_data_load[], sm_data_start[], sm_data_end[], sm_bss_start[], sm_bss_end[];
extern uint32_t sm_stack_top[];
extern int main(void) __attribute__((weak));

__attribute__((noinline, section(".startup"))) void sm_stop(void) {
    for (;;) {
    }
}

__attribute__((section(".startup"))) void sm_reset(void) {
    const volatile uint32_t *from = sm_data_load;
    for (volatile uint32_t *to = sm_data_start; to < sm_data_end;) {
        *to++ = *from++;
    }
    for (volatile uint32_t *to = sm_bss_start; to < sm_bss_end;) {
        *to++ = 0;
    }
    if (main) {
        main();
    }
    sm_stop();
}

__attribute__((used, section(".vectors"))) static const void *const vectors[16] = {
    sm_stack_top, (const void *)sm_reset, (const void *)sm_stop, (const void *)sm_stop,
};
